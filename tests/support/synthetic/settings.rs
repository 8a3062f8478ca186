//! The commands for settings: the file format, timing, GPUs and kernels.

use std::collections::HashMap;

use super::capture::{Device, Format, KernelShape, TextStyle};
use super::simulate::Player;
use super::text;

/// The timing of host and GPU: the keys of `timing`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// A launch, copy or set call on the host.
    pub(super) launch: i64,
    /// Added to the first launch of each kernel, when its code is loaded.
    pub(super) first_launch: i64,
    /// Time after each call until the next.
    pub(super) between: i64,
    /// Time for opening an op's ranges: Python and its markers.
    pub(super) op: i64,
    /// Time from the end of the call to the earliest start on the GPU.
    pub(super) queue: i64,
    /// Time between two activities on a stream.
    pub(super) gap: i64,
    /// Variation of GPU durations in per mille, up or down; the same in every simulation.
    pub(super) jitter: i64,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            launch: 5_000,
            first_launch: 0,
            between: 4_000,
            op: 2_000,
            queue: 2_000,
            gap: 1_000,
            jitter: 0,
        }
    }
}

impl Player<'_> {
    pub(super) fn format(&mut self, rest: &str) -> Result<(), String> {
        let (format, version) = rest.split_once(' ').unwrap_or((rest, "3.11.1"));
        self.capture.format = match format {
            "nsys" => Format::Nsys,
            "nvprof" => Format::Nvprof,
            _ => return Err(format!("`{format}`: expected nsys or nvprof")),
        };
        version.clone_into(&mut self.capture.schema);
        Ok(())
    }

    pub(super) fn text(&mut self, rest: &str) -> Result<(), String> {
        self.capture.text = match rest {
            "inline" => TextStyle::Inline,
            "registered" => TextStyle::Registered,
            "mixed" => TextStyle::Mixed,
            _ => return Err(format!("`{rest}`: expected inline, registered or mixed")),
        };
        Ok(())
    }

    pub(super) fn timing(&mut self, rest: &str) -> Result<(), String> {
        const KEYS: [&str; 7] = [
            "launch",
            "first_launch",
            "between",
            "op",
            "queue",
            "gap",
            "jitter",
        ];
        for word in rest.split_whitespace() {
            let (key, value) = text::option(word, &KEYS)?;
            match key {
                "launch" => self.timing.launch = text::time(value)?,
                "first_launch" => self.timing.first_launch = text::time(value)?,
                "between" => self.timing.between = text::time(value)?,
                "op" => self.timing.op = text::time(value)?,
                "queue" => self.timing.queue = text::time(value)?,
                "gap" => self.timing.gap = text::time(value)?,
                _ => {
                    let percent = value.strip_suffix('%').and_then(|v| v.parse::<f64>().ok());
                    let percent =
                        percent.ok_or_else(|| format!("`{value}` is not a percentage"))?;
                    self.timing.jitter = (percent * 10.0).round() as i64;
                }
            }
        }
        Ok(())
    }

    pub(super) fn roots(&mut self, rest: &str) -> Result<(), String> {
        for word in rest.split_whitespace() {
            let (key, value) = text::option(word, &["user", "lib"])?;
            self.roots[usize::from(key == "lib")] = format!("{value}/");
        }
        Ok(())
    }

    pub(super) fn device(&mut self, rest: &str) -> Result<(), String> {
        const KEYS: [&str; 10] = [
            "cc",
            "sms",
            "clock",
            "bandwidth",
            "memory",
            "l2",
            "warps",
            "blocks",
            "regs",
            "shared",
        ];
        let (left, name) = rest
            .split_once(" = ")
            .ok_or("expected `= NAME` at the end")?;
        let mut words = left.split_whitespace();
        let id = text::int(words.next().unwrap_or_default())?;
        let mut attributes = HashMap::new();
        for word in words {
            let (key, value) = text::option(word, &[&KEYS[..], &["optin"]].concat())?;
            match key {
                "cc" => {
                    let (major, minor) = value.split_once('.').ok_or("write cc=7.0")?;
                    attributes.insert("major".to_owned(), text::int(major)?);
                    attributes.insert("minor".to_owned(), text::int(minor)?);
                }
                "clock" | "bandwidth" => {
                    attributes.insert(key.to_owned(), text::rate(value)?);
                }
                _ => {
                    attributes.insert(key.to_owned(), text::size(value)?);
                }
            }
        }
        self.capture.devices.push(Device {
            id,
            name: name.trim().to_owned(),
            attributes,
        });
        Ok(())
    }

    pub(super) fn define(&mut self, rest: &str) -> Result<(), String> {
        let (left, full) = rest
            .split_once(" = ")
            .ok_or("expected `= KERNEL NAME` at the end")?;
        let mut words = left.split_whitespace();
        let name = words.next().unwrap_or_default();
        let mut shape = KernelShape::named(full.trim());
        for word in words {
            let (key, value) = text::option(word, &KernelShape::KEYS)?;
            shape.set(key, value)?;
        }
        match self.defines.insert(name.to_owned(), shape) {
            Some(_) => Err(format!("`{name}` is defined twice")),
            None => Ok(()),
        }
    }
}
