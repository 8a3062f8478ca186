//! What a serving engine says about an execution of its model, by the name of the range around it.

use rustc_hash::FxHashMap;

use crate::profile::{Profile, RangeKind, Span, StrId};

/// The requests that one execution of a served model works on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ServingBatch {
    /// Requests whose prompt is read.
    pub prefill: Requests,
    /// Requests that get their next token.
    pub decode: Requests,
}

/// Requests of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Requests {
    /// Number of requests.
    pub sequences: u64,
    /// New tokens of all of them; `None` where the name does not say.
    pub tokens: Option<u64>,
    /// Keys that these tokens attend to: the lengths of all sequences so far; `None` where the name does
    /// not say.
    pub keys: Option<u64>,
    /// Pairs of a new token and another of its request, itself included, summed over requests: new tokens
    /// squared; `None` where the name does not say.
    pub new_pairs: Option<u64>,
    /// Pairs of a new token and a key of its request, summed over requests; `None` where the name does not
    /// say.
    pub pairs: Option<u64>,
}

impl ServingBatch {
    /// Reads the name of a range. vLLM names `execute_context_1(888)_generation_0(0)`, with requests and
    /// their tokens (vllm/v1/worker/gpu_worker.py, `annotate_profile`); the annotation that TraceLens uses
    /// for vLLM and SGLang gives sums of the lengths of queries and keys instead,
    /// `execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)`; SGLang names
    /// `step[DECODE bs=32]` and `step[EXTEND bs=15 toks=15360]` (sglang/srt/model_executor/model_runner.py).
    pub fn read(name: &str) -> Option<ServingBatch> {
        if let Some(step) = name.strip_prefix("step[").and_then(|s| s.strip_suffix(']')) {
            return ServingBatch::of_step(step);
        }
        let rest = name.strip_prefix("execute_")?;
        let (_, rest) = rest.split_once("context_")?;
        let (prefill, rest) = Requests::read(rest)?;
        let (decode, rest) = Requests::read(rest.strip_prefix("_generation_")?)?;
        rest.is_empty().then_some(ServingBatch { prefill, decode })
    }

    fn of_step(step: &str) -> Option<ServingBatch> {
        let mut words = step.split(' ');
        let kind = words.next()?;
        let number = |key: &str| {
            let mut values = step.split(' ').filter_map(|word| word.strip_prefix(key));
            values.next()?.parse().ok()
        };
        let requests = Requests {
            sequences: number("bs=")?,
            tokens: number("toks="),
            ..Requests::default()
        };
        let none = Requests::default();
        match kind {
            "DECODE" => Some(ServingBatch {
                prefill: none,
                decode: requests,
            }),
            "EXTEND" => Some(ServingBatch {
                prefill: requests,
                decode: none,
            }),
            _ => None,
        }
    }

    /// `prefill`, `decode` or `mixed`; `None` for a batch without requests.
    pub fn phase(&self) -> Option<&'static str> {
        match (self.prefill.sequences, self.decode.sequences) {
            (0, 0) => None,
            (0, _) => Some("decode"),
            (_, 0) => Some("prefill"),
            _ => Some("mixed"),
        }
    }

    /// Number of requests.
    pub fn sequences(&self) -> u64 {
        let Requests { sequences, .. } = self.prefill;
        sequences.saturating_add(self.decode.sequences)
    }

    /// New tokens.
    pub fn tokens(&self) -> Option<u64> {
        self.sum(|requests| requests.tokens)
    }

    /// Keys that the new tokens attend to.
    pub fn keys(&self) -> Option<u64> {
        self.sum(|requests| requests.keys)
    }

    /// Pairs of a new token and a key that attention without a mask multiplies.
    pub fn pairs(&self) -> Option<u64> {
        self.sum(|requests| requests.pairs)
    }

    /// Pairs that a causal mask leaves, aligned so that the last new token sees all keys.
    pub fn causal_pairs(&self) -> Option<u64> {
        let new = self.sum(|requests| requests.new_pairs)?;
        let masked = new.checked_sub(self.tokens()?)? / 2;
        self.pairs()?.checked_sub(masked)
    }

    /// The batch without what grows with every token.
    fn steady(&self) -> ServingBatch {
        let steady = |requests: &Requests| Requests {
            keys: requests.keys.map(|_| 0),
            new_pairs: requests.new_pairs.map(|_| 0),
            pairs: requests.pairs.map(|_| 0),
            ..*requests
        };
        ServingBatch {
            prefill: steady(&self.prefill),
            decode: steady(&self.decode),
        }
    }

    /// The mean of batches that differ at most in what grows with every token.
    fn mean(all: &[ServingBatch]) -> Option<ServingBatch> {
        let first = all.first()?;
        let mean = |of: &dyn Fn(&ServingBatch) -> Option<u64>| {
            let sum = all
                .iter()
                .try_fold(0_u128, |sum, batch| Some(sum + u128::from(of(batch)?)))?;
            u64::try_from(sum / all.len() as u128).ok()
        };
        let requests = |of: fn(&ServingBatch) -> &Requests| Requests {
            keys: mean(&|batch| of(batch).keys),
            new_pairs: mean(&|batch| of(batch).new_pairs),
            pairs: mean(&|batch| of(batch).pairs),
            ..*of(first)
        };
        Some(ServingBatch {
            prefill: requests(|batch| &batch.prefill),
            decode: requests(|batch| &batch.decode),
        })
    }

    /// The sum over both kinds of requests; `None` where it is not known of one that there is.
    fn sum(&self, of: fn(&Requests) -> Option<u64>) -> Option<u64> {
        let known = |requests: &Requests| match requests.sequences {
            0 => Some(0),
            _ => of(requests),
        };
        known(&self.prefill)?.checked_add(known(&self.decode)?)
    }
}

impl Requests {
    /// Reads `32(sq32sk55086sqsq32sqsk55086)`, `32(32)` or `1(888_788544)`, and returns the rest.
    fn read(text: &str) -> Option<(Requests, &str)> {
        let (sequences, rest) = text.split_once('(')?;
        let (inner, rest) = rest.split_once(')')?;
        let sequences = sequences.parse().ok()?;
        let requests = match inner.strip_prefix("sq") {
            Some(sums) => {
                let (tokens, sums) = sums.split_once("sk")?;
                let (keys, sums) = sums.split_once("sqsq")?;
                let (new_pairs, pairs) = sums.split_once("sqsk")?;
                Requests {
                    sequences,
                    tokens: tokens.parse().ok(),
                    keys: keys.parse().ok(),
                    new_pairs: new_pairs.parse().ok(),
                    pairs: pairs.parse().ok(),
                }
            }
            None => Requests {
                sequences,
                tokens: inner.split('_').next()?.parse().ok(),
                ..Requests::default()
            },
        };
        Some((requests, rest))
    }

    /// How much is known.
    fn details(&self) -> usize {
        usize::from(self.tokens.is_some()) + usize::from(self.keys.is_some())
    }
}

/// The batch of all executions around these launches and their number; `None` where no range names one, or
/// several differ in requests or new tokens. What the new tokens attend to grows from one to the next; it is the
/// mean.
pub(super) fn of_window(profile: &Profile, launched: Span) -> Option<(ServingBatch, u64)> {
    let strings = profile.strings.iter();
    let named: FxHashMap<StrId, ServingBatch> = strings
        .filter_map(|(id, text)| Some((id, ServingBatch::read(text)?)))
        .collect();
    if named.is_empty() {
        return None;
    }
    let mut found: Vec<ServingBatch> = (profile.ranges.iter())
        .filter(|range| matches!(range.kind, RangeKind::Annotation | RangeKind::PushPop))
        .filter(|range| range.span.start <= launched.end && range.span.end >= launched.start)
        .filter_map(|range| named.get(&range.text).copied())
        .collect();
    // Two ranges may name one execution, of which one says more.
    let details = |batch: &ServingBatch| batch.prefill.details() + batch.decode.details();
    let most = found.iter().map(details).max()?;
    found.retain(|batch| details(batch) == most);
    let steady = found.first()?.steady();
    let same = found.iter().all(|batch| batch.steady() == steady);
    Some((
        ServingBatch::mean(&found).filter(|_| same)?,
        found.len() as u64,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(sequences: u64, tokens: Option<u64>, keys: Option<u64>) -> Requests {
        Requests {
            sequences,
            tokens,
            keys,
            ..Requests::default()
        }
    }

    #[test]
    fn names_of_executions_tell_requests_and_tokens() {
        let none = requests(0, Some(0), None);
        for (name, prefill, decode, phase) in [
            (
                "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)",
                Requests {
                    new_pairs: Some(0),
                    pairs: Some(0),
                    ..requests(0, Some(0), Some(0))
                },
                Requests {
                    new_pairs: Some(32),
                    pairs: Some(32_785),
                    ..requests(32, Some(32), Some(32_785))
                },
                "decode",
            ),
            (
                "execute_context_1(888_788544)_generation_0(0)",
                requests(1, Some(888), None),
                none,
                "prefill",
            ),
            (
                "execute_context_2(900)_generation_30(30)",
                requests(2, Some(900), None),
                requests(30, Some(30), None),
                "mixed",
            ),
            (
                "step[DECODE bs=32]",
                Requests::default(),
                requests(32, None, None),
                "decode",
            ),
            (
                "step[EXTEND bs=15 toks=15360]",
                requests(15, Some(15_360), None),
                Requests::default(),
                "prefill",
            ),
        ] {
            let batch = ServingBatch::read(name).unwrap_or_default();
            assert_eq!(batch, ServingBatch { prefill, decode }, "{name}");
            assert_eq!(batch.phase(), Some(phase), "{name}");
        }
    }

    #[test]
    fn other_names_are_no_batches() {
        for name in [
            "execute_model",
            "execute_context_x(1)_generation_0(0)",
            "execute_context_1(1)_generation_0(0) and more",
            "step[WARMUP bs=1]",
            "step[DECODE]",
            "step 7",
            "",
        ] {
            assert_eq!(ServingBatch::read(name), None, "{name}");
        }
    }

    #[test]
    fn keys_are_known_where_every_kind_of_request_has_them() {
        let batch = |text| ServingBatch::read(text).unwrap_or_default();
        let mixed = "execute_8_context_1(sq6sk9sqsq36sqsk54)_generation_2(sq2sk40sqsq2sqsk40)";
        assert_eq!(batch(mixed).keys(), Some(49));
        assert_eq!(batch("step[DECODE bs=32]").keys(), None);
    }

    #[test]
    fn masks_leave_the_pairs_of_each_request() {
        // 6 new tokens of 9 see 4 to 9 keys; 2 requests that see all 40 of theirs.
        let mixed = "execute_8_context_1(sq6sk9sqsq36sqsk54)_generation_2(sq2sk40sqsq2sqsk40)";
        let batch = ServingBatch::read(mixed).unwrap();
        assert_eq!(batch.pairs(), Some(94));
        assert_eq!(batch.causal_pairs(), Some((4..=9).sum::<u64>() + 40));
    }

    #[test]
    fn executions_differ_at_most_in_what_they_attend_to() {
        let batch = |keys: u64, tokens| {
            let name =
                format!("execute_2_context_0(0)_generation_2(sq{tokens}sk{keys}sqsq2sqsk{keys})");
            ServingBatch::read(&name).unwrap()
        };
        let (first, second) = (batch(10, 2), batch(14, 2));
        assert_eq!(first.steady(), second.steady());
        assert_eq!(ServingBatch::mean(&[first, second]), Some(batch(12, 2)));
        assert_ne!(first.steady(), batch(10, 3).steady());
    }
}
