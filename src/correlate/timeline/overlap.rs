//! How much computation beside communication can be saved before the steps wait for the communication.

/// Walks over the time of one device.
///
/// Between two points at which computation waits for communication, what is saved beside communication lets the
/// next communication begin earlier, but not before the last one has ended: by no more than what is computed in
/// between. Communication that ends while nothing is computed is what the computation waits for, so nothing that
/// was saved beside it counts.
#[derive(Debug, Default)]
pub(super) struct CommunicationSlack {
    /// Computation beside communication since the last such point, in ns.
    beside: i64,
    /// By how much the communication that runs, or ran last, can begin earlier.
    earlier: i64,
    /// Computation since the last communication ended.
    between: i64,
    communicating: bool,
    /// Communication runs and nothing is computed.
    waiting: bool,
    /// What was found up to the last such point.
    found: i64,
}

impl CommunicationSlack {
    /// The device communicates, computes, or both, for `ns`.
    pub(super) fn pass(&mut self, computing: bool, communicating: bool, ns: i64) {
        match (self.communicating, communicating) {
            (false, true) => self.begin(),
            (true, false) if self.waiting => {
                *self = CommunicationSlack {
                    found: self.found.saturating_add(self.earlier),
                    ..CommunicationSlack::default()
                };
            }
            _ => {}
        }
        self.communicating = communicating;
        self.waiting = communicating && !computing;
        if computing {
            let sum = match communicating {
                true => &mut self.beside,
                false => &mut self.between,
            };
            *sum = sum.saturating_add(ns);
        }
    }

    fn begin(&mut self) {
        self.earlier = self.beside.min(self.earlier.saturating_add(self.between));
        self.between = 0;
    }

    /// At most so many ns can be saved.
    pub(super) fn ns(mut self) -> i64 {
        if !self.waiting {
            self.begin();
        }
        self.found.saturating_add(self.earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` computes, `-` communicates, `=` does both, ` ` neither; each for 10 ns.
    fn slack(time: &str) -> i64 {
        let mut slack = CommunicationSlack::default();
        for what in time.chars() {
            slack.pass("+=".contains(what), "-=".contains(what), 10);
        }
        slack.ns()
    }

    #[test]
    fn computation_beside_communication_can_go_as_far_as_the_communication_can_begin_earlier() {
        for (time, expected) in [
            ("", 0),
            ("+++", 0),
            // Nothing is computed when it ends: computation waits for it.
            ("+++==-+++", 0),
            ("+++==", 0),
            ("+++==+++", 20),
            ("====++==-", 20),
            // What one pause leaves is for the next one.
            ("====+=++++=-", 50),
            ("=++++====+=-", 20),
            // Each point at which computation waits is a new start.
            ("==+-+==+++=-", 30),
            // The GPU idles.
            ("===  +=", 10),
        ] {
            assert_eq!(slack(time), expected, "{time}");
        }
    }
}
