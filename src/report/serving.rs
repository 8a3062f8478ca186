//! What an execution of a served model works on.

use serde::{Deserialize, Serialize};

use crate::base::units::{count, counted};
use crate::correlate::ServingBatch;

/// The requests of an execution of a served model, by the range that the engine puts around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Serving {
    /// `prefill`, `decode` or `mixed`.
    pub phase: String,
    /// Number of requests.
    pub requests: u64,
    /// New tokens of all requests; `null` where the range does not say.
    pub new_tokens: Option<u64>,
    /// Tokens that the new ones attend to, over all requests; `null` where the range does not say.
    pub cached_tokens: Option<u64>,
}

impl Serving {
    pub(super) fn of(batch: &ServingBatch) -> Option<Serving> {
        Some(Serving {
            phase: batch.phase()?.to_owned(),
            requests: batch.sequences(),
            new_tokens: batch.tokens(),
            cached_tokens: batch.keys(),
        })
    }

    /// The batch in a few words, and its rate if an execution takes this long, in ns.
    pub(super) fn figure(&self, execution_ns: Option<f64>) -> String {
        let phase = match self.phase.as_str() {
            "mixed" => "prefill and decode",
            phase => phase,
        };
        let mut text = format!("{phase} of {}", counted(self.requests, "request"));
        let tokens = self.new_tokens.map(|n| counted(n, "new token"));
        let cached = self.cached_tokens.filter(|_| self.phase == "decode");
        let cached = cached.map(|n| format!("{} cached", count(n)));
        let parts: Vec<String> = tokens.into_iter().chain(cached).collect();
        if !parts.is_empty() {
            text.push_str(&format!(" ({})", parts.join(", ")));
        }
        let rate = self.new_tokens.zip(execution_ns.filter(|ns| *ns > 0.0));
        if let Some((tokens, ns)) = rate {
            let rate = (tokens as f64 * 1e9 / ns).round();
            text.push_str(&format!(
                ": {} tokens/s in this capture",
                count(rate as u64)
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(range: &str, ns: Option<f64>) -> Option<String> {
        let batch = ServingBatch::read(range)?;
        Some(Serving::of(&batch)?.figure(ns))
    }

    #[test]
    fn batches_are_told_as_far_as_they_are_known() {
        for (range, ns, expected) in [
            (
                "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)",
                Some(1e7),
                "decode of 32 requests (32 new tokens, 32,785 cached): 3,200 tokens/s in this capture",
            ),
            ("step[DECODE bs=8]", Some(1e7), "decode of 8 requests"),
            (
                "execute_context_1(888)_generation_0(0)",
                None,
                "prefill of 1 request (888 new tokens)",
            ),
            (
                "execute_context_1(800)_generation_3(3)",
                None,
                "prefill and decode of 4 requests (803 new tokens)",
            ),
        ] {
            assert_eq!(figure(range, ns).as_deref(), Some(expected));
        }
        assert_eq!(figure("execute_context_0(0)_generation_0(0)", None), None);
    }
}
