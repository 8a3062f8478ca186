//! Text that several threads make and one writes, in order and with little of it in memory.

use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Buffers to write, in order.
pub(super) type Batch = Vec<Vec<u8>>;

/// Buffers that have been written and may be filled again: fresh memory costs more than what is put
/// into it.
#[derive(Debug, Default)]
pub(super) struct Shelf(Mutex<Vec<Vec<u8>>>);

impl Shelf {
    /// An empty buffer.
    pub(super) fn take(&self) -> Vec<u8> {
        let kept = self.0.lock().ok().and_then(|mut shelf| shelf.pop());
        kept.unwrap_or_default()
    }

    fn put(&self, mut buffer: Vec<u8>) {
        /// A buffer grown for one enormous line is not kept.
        const LARGEST: usize = 4 << 20;
        buffer.clear();
        if buffer.capacity() <= LARGEST
            && let Ok(mut shelf) = self.0.lock()
        {
            shelf.push(buffer);
        }
    }
}

/// Where batches go.
#[derive(Debug)]
pub(super) struct Sink(SyncSender<Batch>);

impl Sink {
    /// Hands a batch to the writer; false when nobody reads on, and nothing more is wanted.
    pub(super) fn send(&self, batch: Batch) -> bool {
        self.0.send(batch).is_ok()
    }
}

/// Writes what `make` sends while it makes more: one batch waits at most.
///
/// # Errors
/// Those of `out`; `make` is told at its next batch.
pub(super) fn write(
    out: &mut dyn Write,
    shelf: &Shelf,
    make: impl FnOnce(&Sink) + Send,
) -> io::Result<()> {
    std::thread::scope(|scope| {
        let (to, from) = sync_channel::<Batch>(1);
        scope.spawn(move || make(&Sink(to)));
        for buffer in from.into_iter().flatten() {
            out.write_all(&buffer)?;
            shelf.put(buffer);
        }
        Ok(())
    })
}

/// Appends a number.
pub(super) fn push_number(out: &mut Vec<u8>, number: u64) {
    // 2^64 has twenty digits. `fmt` takes several times as long, and there are a dozen per line.
    let mut digits = [b'0'; 20];
    let mut rest = number;
    let mut first = digits.len();
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        first = at;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(first..).unwrap_or_default());
}

/// Appends a number that may be below zero.
pub(super) fn push_signed(out: &mut Vec<u8>, number: i64) {
    if number < 0 {
        out.push(b'-');
    }
    push_number(out, number.unsigned_abs());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_std_prints_them() {
        for number in [0, 7, 10, 99, 100, 1_234_567_890, u64::MAX] {
            let mut out = Vec::new();
            push_number(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
        for number in [0, -1, 12, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            push_signed(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }

    #[test]
    fn batches_arrive_in_order() {
        let shelf = Shelf::default();
        let mut out = Vec::new();
        write(&mut out, &shelf, |sink| {
            for number in 0..100_u64 {
                let mut buffer = shelf.take();
                push_number(&mut buffer, number);
                assert!(sink.send(vec![buffer, b" ".to_vec()]));
            }
        })
        .unwrap();
        let wanted: String = (0..100).map(|n| format!("{n} ")).collect();
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }

    /// Takes so many bytes, then nobody reads on.
    struct Closed(usize);

    impl Write for Closed {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.0.checked_sub(bytes.len());
            self.0 = room.ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_is_made_for_nobody() {
        let shelf = Shelf::default();
        let mut made = 0;
        let result = write(&mut Closed(10), &shelf, |sink| {
            while sink.send(vec![b"12345".to_vec()]) {
                made += 1;
                assert!(made < 1000);
            }
        });
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
