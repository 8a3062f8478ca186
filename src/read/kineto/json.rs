//! Parses the JSON of a trace one event at a time. Only the event being read is kept, a damaged event is
//! skipped, and a truncated file yields the events before its end.

use serde_json::value::RawValue;

use super::window::{More, TextWindow};

/// Declares an object of which only some fields are read. If a key occurs twice, the last value counts.
/// Any other JSON value is read as an empty object.
macro_rules! object {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $kind:ty = $($key:literal)|+,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Default, Clone, Copy)]
        pub(super) struct $name<'a> {
            $($(#[$about])* pub(super) $field: $kind,)+
        }

        const _: () = {
        use std::fmt;
        use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

        impl<'de: 'a, 'a> Deserialize<'de> for $name<'a> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                #[allow(non_camel_case_types)]
                enum Key { $($field,)+ unread }

                impl<'de> Deserialize<'de> for Key {
                    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                        struct Keys;
                        impl Visitor<'_> for Keys {
                            type Value = Key;
                            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                                f.write_str("a key")
                            }
                            fn visit_str<E>(self, key: &str) -> Result<Key, E> {
                                Ok(match key {
                                    $($($key)|+ => Key::$field,)+
                                    _ => Key::unread,
                                })
                            }
                        }
                        from.deserialize_identifier(Keys)
                    }
                }

                struct Fields<'a>(std::marker::PhantomData<&'a ()>);
                impl<'de: 'a, 'a> Visitor<'de> for Fields<'a> {
                    type Value = $name<'a>;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$name<'a>, A::Error> {
                        let mut found = $name::default();
                        while let Some(key) = map.next_key::<Key>()? {
                            match key {
                                $(Key::$field => found.$field = map.next_value()?,)+
                                Key::unread => {
                                    map.next_value::<IgnoredAny>()?;
                                }
                            }
                        }
                        Ok(found)
                    }
                    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<$name<'a>, A::Error> {
                        while list.next_element::<IgnoredAny>()?.is_some() {}
                        Ok($name::default())
                    }
                    fn visit_str<E>(self, _: &str) -> Result<$name<'a>, E> {
                        Ok($name::default())
                    }
                    fn visit_bool<E>(self, _: bool) -> Result<$name<'a>, E> {
                        Ok($name::default())
                    }
                    fn visit_i64<E>(self, _: i64) -> Result<$name<'a>, E> {
                        Ok($name::default())
                    }
                    fn visit_u64<E>(self, _: u64) -> Result<$name<'a>, E> {
                        Ok($name::default())
                    }
                    fn visit_f64<E>(self, _: f64) -> Result<$name<'a>, E> {
                        Ok($name::default())
                    }
                    fn visit_unit<E>(self) -> Result<$name<'a>, E> {
                        Ok($name::default())
                    }
                }
                from.deserialize_any(Fields(std::marker::PhantomData))
            }
        }
        };
    };
}

pub(super) use object;

type Raw<'a> = Option<&'a RawValue>;

object! {
    /// A trace event with its values as JSON text.
    Event {
        ph: Raw<'a> = "ph",
        cat: Raw<'a> = "cat",
        name: Raw<'a> = "name",
        pid: Raw<'a> = "pid",
        tid: Raw<'a> = "tid",
        /// The id that the two ends of a flow share.
        id: Raw<'a> = "id",
        /// Microseconds.
        ts: Raw<'a> = "ts",
        /// Microseconds.
        dur: Raw<'a> = "dur",
        args: Args<'a> = "args",
    }
}

object! {
    /// The arguments of an event that are read. `External id` is not: in many releases it is a copy of
    /// the correlation id and refers to an unrelated operator.
    Args {
        correlation: Raw<'a> = "correlation",
        device: Raw<'a> = "device",
        context: Raw<'a> = "context",
        stream: Raw<'a> = "stream",
        /// The real stream, where `stream` is a lane that the exporter has chosen for display.
        original_stream: Raw<'a> = "original_stream",
        grid: Raw<'a> = "grid",
        block: Raw<'a> = "block",
        registers: Raw<'a> = "registers per thread",
        shared: Raw<'a> = "shared memory",
        graph: Raw<'a> = "graph id",
        graph_node: Raw<'a> = "graph node id",
        /// The region that `torch.cuda.graph_annotations.mark_kernels` put a node of a CUDA graph into; torchtitan
        /// names the modules of compiled graphs with a key of its own.
        region: Raw<'a> = "name" | "module_fqn",
        /// `backward` for nodes of the region's backward pass.
        autograd_phase: Raw<'a> = "autograd_phase",
        bytes: Raw<'a> = "bytes" | "size",
        /// Of the events of PyTorch's allocator.
        memory_block: Raw<'a> = "Bytes",
        allocated: Raw<'a> = "Total Allocated",
        reserved: Raw<'a> = "Total Reserved",
        device_id: Raw<'a> = "Device Id",
        device_type: Raw<'a> = "Device Type",
        kind: Raw<'a> = "kind",
        sequence: Raw<'a> = "Sequence number",
        record: Raw<'a> = "Record function id",
        position: Raw<'a> = "Ev Idx",
        dims: Raw<'a> = "Input Dims" | "Input dims",
        types: Raw<'a> = "Input type" | "Input Types" | "Input types",
        strides: Raw<'a> = "Input Strides",
        concrete: Raw<'a> = "Concrete Inputs",
        stack: Raw<'a> = "Call stack",
        hierarchy: Raw<'a> = "Module Hierarchy",
        collective: Raw<'a> = "Collective name",
        in_elements: Raw<'a> = "In msg nelems",
        out_elements: Raw<'a> = "Out msg nelems",
        group_size: Raw<'a> = "Group size",
        group_ranks: Raw<'a> = "Process Group Ranks",
        dtype: Raw<'a> = "dtype",
        /// FLOPs and 10^9 bytes of a compiled kernel, by TorchInductor.
        kernel_flop: Raw<'a> = "kernel_flop",
        kernel_num_gb: Raw<'a> = "kernel_num_gb",
    }
}

/// Receives the content of a trace, in file order.
pub(super) trait TraceSink {
    /// An event.
    fn event(&mut self, event: &Event<'_>);
    /// An entry of the list of events that is not an event: the position and number of its bytes.
    fn unreadable(&mut self, position: u64, bytes: u64);
    /// A member of the trace object other than its events; `value` is JSON text.
    fn property(&mut self, key: &str, value: &str);
}

/// What was read of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) end: End,
    /// The number of bytes of the unpacked text that were looked at: where a text ends that is cut.
    pub(super) bytes: u64,
    pub(super) strays: Strays,
}

/// What a text holds beside one trace, none of which is read. Positions are bytes from the beginning of
/// the unpacked text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Strays {
    /// The position of the first value or sign between the members of the trace object that is no
    /// member, as when the list of events was closed too early.
    pub(super) first: Option<u64>,
    /// The number of such values and signs.
    pub(super) count: u64,
    /// The position of the second list of events.
    pub(super) second_list: Option<u64>,
    /// The number of events in the second and later lists.
    pub(super) second_events: u64,
    /// The position of what follows the trace.
    pub(super) behind: Option<u64>,
    /// The number of bytes from there to the end of the text.
    pub(super) bytes_behind: u64,
}

/// How the text of a trace ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Completely.
    Whole,
    /// The text ends before the trace does.
    Cut,
    /// Reading stopped at a value of more than [`super::window::LONGEST_VALUE`] bytes.
    TooLong,
    /// Neither an object nor an array, or an object without events.
    NoTrace,
}

/// Reads a trace, an object with `traceEvents` or a bare array of events, from a text that arrives in
/// parts of any size. The result does not depend on their sizes.
pub(super) fn read(more: More<'_>, sink: &mut dyn TraceSink) -> Outcome {
    let mut reader = Reader {
        window: TextWindow::new(more),
        sink,
        strays: Strays::default(),
        events: 0,
        second: false,
    };
    let end = reader.trace();
    if end == End::Whole {
        reader.behind();
    }
    Outcome {
        end,
        bytes: reader.window.position() + reader.window.rest().len() as u64,
        strays: reader.strays,
    }
}

struct Reader<'m, 's> {
    window: TextWindow<'m>,
    sink: &'s mut dyn TraceSink,
    strays: Strays,
    /// The number of events that were passed on.
    events: u64,
    /// Whether the events being read belong to another list than the first and are left out.
    second: bool,
}

/// Methods return `None` if the text ends too early.
impl Reader<'_, '_> {
    fn trace(&mut self) -> End {
        if self.window.peek().is_some() && self.window.text.starts_with('\u{feff}') {
            self.window.at = '\u{feff}'.len_utf8();
        }
        self.skip_space();
        let ended = match self.window.peek() {
            Some(b'[') => self.list().map(|()| true),
            Some(b'{') => self.members(),
            _ => return End::NoTrace,
        };
        match ended {
            Some(true) => End::Whole,
            Some(false) => End::NoTrace,
            None if self.window.too_long => End::TooLong,
            None => End::Cut,
        }
    }

    /// Looks at what follows the trace: only blanks belong there.
    fn behind(&mut self) {
        self.skip_space();
        if self.window.peek().is_none() {
            return;
        }
        self.strays.behind = Some(self.window.position());
        while self.window.peek().is_some() {
            self.strays.bytes_behind += self.window.rest().len() as u64;
            self.window.at = self.window.text.len();
        }
    }

    /// Counts a value or sign that does not belong where it stands.
    fn stray(&mut self, position: u64) {
        self.strays.first.get_or_insert(position);
        self.strays.count += 1;
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.window.rest();
            if let Some(space) = rest.iter().position(|b| !b.is_ascii_whitespace()) {
                self.window.at += space;
                return;
            }
            self.window.at = self.window.text.len();
            if !self.window.refill() {
                return;
            }
        }
    }

    /// Reads the members of the trace object; returns whether its events were among them.
    fn members(&mut self) -> Option<bool> {
        let mut found = false;
        self.window.at += 1;
        loop {
            self.skip_space();
            match self.window.peek()? {
                b'}' => {
                    self.window.at += 1;
                    return Some(found);
                }
                b',' => self.window.at += 1,
                b'"' => {
                    let position = self.window.position();
                    let end = self.window.end(after_string)?;
                    let key = self.window.take(end);
                    let key = key
                        .get(1..key.len().saturating_sub(1))
                        .unwrap_or_default()
                        .to_owned();
                    self.skip_space();
                    if self.window.peek()? != b':' {
                        self.stray(position);
                        continue;
                    }
                    self.window.at += 1;
                    self.skip_space();
                    if key == "traceEvents" && self.window.peek()? == b'[' {
                        found = true;
                        self.list()?;
                    } else {
                        let end = self.window.end(after_value)?;
                        self.sink.property(&key, self.window.take(end));
                    }
                }
                // Events that follow a list which was closed too early, or something invalid. The members
                // of such an event must not be taken for members of the trace.
                first => {
                    let position = self.window.position();
                    self.stray(position);
                    self.window.at = match first {
                        b'{' | b'[' => self.window.end(after_value)?,
                        _ => self.window.at + 1,
                    };
                }
            }
        }
    }

    /// Reads a list of events. Of several lists, only the first that has any is read: the same events may
    /// be in all of them.
    fn list(&mut self) -> Option<()> {
        let position = self.window.position();
        self.second = self.events > 0;
        if self.second {
            self.strays.second_list.get_or_insert(position);
        }
        self.events()
    }

    fn events(&mut self) -> Option<()> {
        self.window.at += 1;
        loop {
            self.skip_space();
            match self.window.peek()? {
                b']' => {
                    self.window.at += 1;
                    return Some(());
                }
                b',' => self.window.at += 1,
                b'{' if self.second => {
                    self.window.at = self.window.end(after_value)?;
                    self.strays.second_events += 1;
                }
                b'{' => self.event()?,
                _ => {
                    let position = self.window.position();
                    let end = self.window.end(after_value)?;
                    let bytes = end - self.window.at;
                    self.sink.unreadable(position, bytes as u64);
                    self.window.at = end;
                }
            }
        }
    }

    fn event(&mut self) -> Option<()> {
        self.events += 1;
        let position = self.window.position();
        loop {
            let rest = self.window.text.get(self.window.at..)?;
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Event<'_>>();
            if let Some(Ok(event)) = values.next() {
                self.window.at += values.byte_offset();
                self.sink.event(&event);
                return Some(());
            }
            // The event is invalid JSON or incomplete.
            if let Some(end) = after_value(self.window.text.as_bytes(), self.window.at) {
                let text = self.window.take(end);
                let bytes = text.len() as u64;
                match serde_json::from_str::<Event<'_>>(&repaired(text)) {
                    Ok(event) => self.sink.event(&event),
                    Err(_) => self.sink.unreadable(position, bytes),
                }
                return Some(());
            }
            if !self.window.refill() {
                return None;
            }
        }
    }
}

/// The position after the string that begins at `at`; `None` if the text ends in it.
pub(crate) fn after_string(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        let rest = bytes.get(at..)?;
        at += rest.iter().position(|b| matches!(b, b'"' | b'\\'))?;
        if bytes.get(at) == Some(&b'"') {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The position after the value that begins at `at`, always beyond `at`. Brackets are counted, not
/// matched.
fn after_value(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'"' => after_string(bytes, at),
        b'{' | b'[' => {
            let mut depth = 0_usize;
            let mut at = at;
            loop {
                let rest = bytes.get(at..)?;
                at += rest
                    .iter()
                    .position(|b| matches!(b, b'"' | b'{' | b'}' | b'[' | b']'))?;
                match bytes.get(at)? {
                    b'"' => at = after_string(bytes, at)?,
                    b'{' | b'[' => {
                        depth += 1;
                        at += 1;
                    }
                    _ => {
                        depth -= 1;
                        at += 1;
                        if depth == 0 {
                            return Some(at);
                        }
                    }
                }
            }
        }
        _ => {
            let rest = bytes.get(at + 1..)?;
            let end = |b: &u8| b.is_ascii_whitespace() || b",]}".contains(b);
            Some(at + 1 + rest.iter().position(end)?)
        }
    }
}

/// Repairs invalid JSON of profilers: `NaN` and `inf` become `null`, line breaks inside strings become
/// blanks, and backslashes of Windows paths are escaped.
fn repaired(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                in_string = !in_string;
                out.push(c);
            }
            '\\' if in_string => match chars.peek().copied() {
                Some(next) if "\"\\/bfnrtu".contains(next) => {
                    out.push(c);
                    out.push(next);
                    chars.next();
                }
                _ => out.push_str("\\\\"),
            },
            c if in_string && c.is_control() => out.push(' '),
            c if !in_string && (c.is_ascii_alphabetic() || c == '-') => {
                let mut word = String::from(c);
                while let Some(next) =
                    chars.next_if(|n| n.is_ascii_alphanumeric() || "+-.".contains(*n))
                {
                    word.push(next);
                }
                let number = word.starts_with('-') && !word.contains(|c: char| "nNIi".contains(c));
                let known = matches!(word.as_str(), "true" | "false" | "null");
                out.push_str(if number || known { &word } else { "null" });
            }
            // The exponent of a number begins with a letter but is not a word.
            c if !in_string && c.is_ascii_digit() => {
                out.push(c);
                while let Some(next) =
                    chars.next_if(|n| n.is_ascii_alphanumeric() || "+-.".contains(*n))
                {
                    out.push(next);
                }
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::window::{self, LONGEST_VALUE};
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Default, PartialEq)]
    struct Seen {
        names: Vec<String>,
        unreadable: usize,
        properties: Vec<(String, String)>,
    }

    impl TraceSink for Seen {
        fn event(&mut self, event: &Event<'_>) {
            self.names
                .push(event.name.map_or("-", RawValue::get).to_owned());
        }
        fn unreadable(&mut self, _: u64, _: u64) {
            self.unreadable += 1;
        }
        fn property(&mut self, key: &str, value: &str) {
            self.properties.push((key.to_owned(), value.to_owned()));
        }
    }

    fn seen(text: &str) -> (End, Seen) {
        in_pieces(text, usize::MAX)
    }

    /// Reads a text that arrives in parts of `length` characters.
    fn in_pieces(text: &str, length: usize) -> (End, Seen) {
        let mut seen = Seen::default();
        let mut more = window::in_pieces(text, length);
        (read(&mut more, &mut seen).end, seen)
    }

    /// What a text holds beside a trace, and the number of events read. The result does not depend on the
    /// parts in which it arrives.
    fn strays(text: &str) -> (Strays, usize) {
        let with = |length| {
            let mut seen = Seen::default();
            let outcome = read(&mut window::in_pieces(text, length), &mut seen);
            assert_eq!(outcome.end, End::Whole, "{text}");
            (outcome.strays, seen.names.len())
        };
        let whole = with(usize::MAX);
        for length in 1..9 {
            assert_eq!(with(length), whole, "{length}");
        }
        whole
    }

    #[test]
    fn a_list_that_is_closed_too_early_is_not_silent() {
        // The comma after the second event became a bracket.
        let text = r#"{"traceEvents": [{"name": 1}, {"name": 2}] {"ph": "X", "a": {}}, {"name": 4}], "b": 3}"#;
        let (found, events) = strays(text);
        assert_eq!(events, 2);
        // Two events and the bracket.
        assert_eq!((found.first, found.count), (Some(43), 3));
        assert_eq!(text.find("{\"ph\""), Some(43));
        let (_, seen) = seen(text);
        assert_eq!(seen.properties, [("b".to_owned(), "3".to_owned())]);
        let (found, events) = strays(r#"[{"name": 1}] {"name": 2}]"#);
        assert_eq!(
            (events, found.behind, found.bytes_behind),
            (1, Some(14), 12)
        );
        let (found, _) = strays(r#"{"traceEvents": [{"name": 1}], "a" 3, "b": 2}"#);
        assert_eq!((found.first, found.count), (Some(31), 2));
    }

    #[test]
    fn text_after_the_trace_is_not_silent() {
        let trace = r#"{"traceEvents": [{"name": 1}]}"#;
        assert_eq!(strays(&format!(" {trace} \n\r\t")).0, Strays::default());
        for behind in [trace, "}", "x", "\0", "\u{4e2d}"] {
            let (found, events) = strays(&format!("{trace}\n{behind}"));
            assert_eq!((events, found.behind), (1, Some(31)), "{behind:?}");
            assert_eq!(found.bytes_behind, behind.len() as u64, "{behind:?}");
        }
        // The brace moved in front of the rest of the members.
        let (found, _) = strays(r#"{"traceEvents": [{"name": 1}]}, "b": 2}"#);
        assert_eq!(found.behind, Some(30));
    }

    #[test]
    fn a_second_list_of_events_is_left_out_and_not_silent() {
        let (found, events) =
            strays(r#"{"traceEvents": [{"a": 1}], "traceEvents": [{"a": 1}, {"a": {"b": 2}}]}"#);
        assert_eq!(events, 1);
        assert_eq!((found.second_list, found.second_events), (Some(43), 2));
        // An empty list before it takes nothing away.
        let (found, events) = strays(r#"{"traceEvents": [], "traceEvents": [{"a": 1}]}"#);
        assert_eq!((events, found), (1, Strays::default()));
    }

    #[test]
    fn traces_are_objects_or_arrays() {
        let (end, s) = seen(r#"{"a": {"]": 1}, "traceEvents": [{"name": 1}, {"name": 2}], "b":3}"#);
        assert_eq!((end, s.names.len(), s.unreadable), (End::Whole, 2, 0));
        let keys: Vec<_> = s.properties.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(keys, [("a", "{\"]\": 1}"), ("b", "3")]);
        let (end, s) = seen("\u{feff} [{\"name\": 1}\n,{}]");
        assert_eq!((end, s.names), (End::Whole, vec!["1".into(), "-".into()]));
        assert_eq!(seen("{}").0, End::NoTrace);
        assert_eq!(seen("12").0, End::NoTrace);
        assert_eq!(seen("").0, End::NoTrace);
        assert_eq!(seen(r#"{"traceEvents": 3}"#).0, End::NoTrace);
    }

    #[test]
    fn truncated_texts_yield_the_events_before_the_end() {
        let text = r#"{"traceEvents": [{"name": 1}, {"name": "x]}", "args": {"a": [1]}}]}"#;
        for cut in 1..text.len() {
            let (end, s) = seen(&text[..cut]);
            assert_eq!(end, End::Cut, "{cut}");
            assert_eq!(s.unreadable, 0, "{cut}");
            assert!(s.names.len() <= 2);
        }
    }

    #[test]
    fn endless_values_end_reading() {
        let before = r#"{"traceEvents": [{"name": 1}, "#;
        for (value, unit) in [("\"", "x"), ("[", "["), ("1", "1"), ("{\"name\": \"", " ")] {
            let unit = unit.repeat(1 << 20);
            let mut seen = Seen::default();
            let mut pieces = 0_usize;
            let mut more = |text: &mut String| {
                match pieces {
                    0 => text.push_str(&format!("{before}{value}")),
                    _ => text.push_str(&unit),
                }
                pieces += 1;
                true
            };
            assert_eq!(read(&mut more, &mut seen).end, End::TooLong);
            assert_eq!(seen.names, ["1"]);
            // At most twice the longest value is in memory.
            assert!(pieces << 20 <= 3 * LONGEST_VALUE, "{pieces}");
        }
    }

    #[test]
    fn damaged_events_are_skipped_alone() {
        let (end, s) = seen(
            r#"[{"name": 1, "dur": NaN, "a": -Infinity, "b": [nan, 1e5, -2.5e-3, true]},
                {"name": "C:\Users\x"}, 7, "x", {"name": 3,,}, {"name": 4}, {"name": "a
b"}]"#,
        );
        assert_eq!((end, s.unreadable), (End::Whole, 3));
        assert_eq!(s.names, ["1", r#""C:\\Users\\x""#, "4", "\"a b\""]);
    }

    #[test]
    fn last_duplicate_key_counts_and_invalid_arguments_are_empty() {
        let (_, s) = seen(r#"[{"name": 1, "name": 2, "args": {"device": 1, "device": 2}}]"#);
        assert_eq!(s.names, ["2"]);
        for args in ["null", "3", "-3", "2.5", "true", "\"x\"", "[1, {}]"] {
            let (_, s) = seen(&format!(r#"[{{"name": 1, "args": {args}}}]"#));
            assert_eq!((s.names.len(), s.unreadable), (1, 0), "{args}");
        }
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let deep = format!("[{{\"name\": 1, \"x\": {}", "[".repeat(200_000));
        assert_eq!(seen(&deep).0, End::Cut);
        let closed = format!(
            "[{{\"name\": 1, \"x\": {}{}}}]",
            "[".repeat(200_000),
            "]".repeat(200_000)
        );
        assert_eq!(seen(&closed).0, End::Whole);
    }

    #[test]
    fn results_do_not_depend_on_the_size_of_parts() {
        let text = "\u{feff} {\"a\": {\"]\": 1}, \u{4e2d}, \"traceEvents\": [{\"name\": \"\u{e9}]}\"}, 7,\n \
                    {\"name\": 3,,}, {\"name\": NaN, \"args\": {\"a\": [1]}}], \"b\": \"x\"}";
        let whole = seen(text);
        assert_eq!((whole.0, whole.1.unreadable), (End::Whole, 2));
        assert_eq!((whole.1.names.len(), whole.1.properties.len()), (2, 2));
        for length in 1..text.len() {
            assert_eq!(in_pieces(text, length), whole, "{length}");
        }
    }

    proptest! {
        #[test]
        fn results_do_not_depend_on_the_size_of_parts_for_any_text(
            text in r#"[\[\]{}",:\\a0-9eN\u{e9} \n-]{0,60}"#,
            length in 1_usize..20,
        ) {
            for text in [format!("[{{{text}"), format!("{{\"traceEvents\": [{text}]}}"), text] {
                prop_assert_eq!(in_pieces(&text, length), seen(&text));
            }
        }

        #[test]
        fn reading_any_text_terminates(text in r#"[\[\]{}",:\\a0-9eN \n-]{0,60}"#) {
            seen(&text);
            seen(&format!("[{{{text}"));
            seen(&format!("{{\"traceEvents\": [{text}"));
        }
    }
}
