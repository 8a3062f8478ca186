//! The order of the runs: rounds in which the untreated program and each treatment run once, begun by another
//! one each time, so that a machine that becomes slower does so for all.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::check::Values;
use super::treatment::Treatment;
use crate::base::units::counted;

/// What a run has measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measured {
    /// Median length of a step.
    pub(crate) step_ns: f64,
    /// Number of steps.
    pub(crate) steps: u64,
    /// What it has computed.
    pub(crate) values: Option<Values>,
    /// Whether something was compiled while steps were measured.
    pub(crate) compiling: bool,
    /// The most memory of the GPU in use.
    pub(crate) peak_memory_bytes: Option<u64>,
    /// What the treatments have changed, and how often.
    pub(crate) changes: BTreeMap<String, u64>,
    /// Lines that have the same effect in this program, where a treatment knows them.
    pub(crate) lines: Vec<String>,
}

/// Why a run has measured nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The treatment does not apply, with the reason.
    Refused(String),
    /// The program failed or took too few steps, with the reason.
    Program(String),
    /// The user or the budget ended the series, with the reason.
    Stopped(String),
}

/// Something that can be run with treatments.
pub(crate) trait RunProgram {
    /// Runs the program once.
    ///
    /// # Errors
    /// When nothing was measured.
    fn run(&mut self, treatments: &[&Treatment]) -> Result<Measured, Failed>;
}

/// How much may be run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Runs without and with each treatment.
    pub(crate) rounds: u32,
    /// Most runs of all.
    pub(crate) max_runs: Option<u32>,
    /// How long all of them may take.
    pub(crate) budget: Option<Duration>,
}

/// What was measured.
#[derive(Debug, Default)]
pub(crate) struct Series<'a> {
    /// Runs without treatments.
    pub(crate) untreated: Vec<Measured>,
    /// Runs with one treatment each.
    pub(crate) treated: Vec<(&'a Treatment, Vec<Measured>)>,
    /// Treatments that could not be tried, with the reason.
    pub(crate) not_tried: Vec<(&'a Treatment, String)>,
    /// Runs with several treatments together; `None` if that was not tried.
    pub(crate) together: Option<(Vec<&'a Treatment>, Vec<Measured>)>,
    /// Number of runs.
    pub(crate) runs: u32,
    /// Why the series ended early.
    pub(crate) stopped: Option<String>,
}

/// Runs everything, and then together what `best` picks of it.
///
/// # Errors
/// With the reason when the untreated program cannot be measured.
pub(crate) fn series<'a>(
    treatments: &[&'a Treatment],
    limits: Limits,
    runner: &mut dyn RunProgram,
    best: impl Fn(&Series<'a>) -> Vec<&'a Treatment>,
) -> Result<Series<'a>, String> {
    let mut making = Making {
        limits,
        runner,
        began: Instant::now(),
        longest: Duration::ZERO,
        series: Series::default(),
    };
    making.series.treated = treatments.iter().map(|t| (*t, Vec::new())).collect();
    for round in 0..limits.rounds {
        if making.round(round)?.is_break() {
            break;
        }
    }
    let best = best(&making.series);
    if making.series.stopped.is_none() && best.len() > 1 {
        making.together(best)?;
    }
    Ok(making.series)
}

struct Making<'a, 'r> {
    limits: Limits,
    runner: &'r mut dyn RunProgram,
    began: Instant,
    longest: Duration,
    series: Series<'a>,
}

type Flow = std::ops::ControlFlow<()>;

impl<'a> Making<'a, '_> {
    /// The untreated program and every treatment once.
    fn round(&mut self, round: u32) -> Result<Flow, String> {
        let treatments: Vec<&Treatment> = self.series.treated.iter().map(|(t, _)| *t).collect();
        let mut order: Vec<Option<&'a Treatment>> = vec![None];
        order.extend(treatments.into_iter().map(Some));
        let length = order.len();
        order.rotate_left(round as usize % length);
        // The check of the treated programs, and knowing whether the program runs at all, come first.
        if round == 0 && length > 1 {
            order.push(None);
        }
        for treatment in order {
            let flow = match treatment {
                None => self.untreated()?,
                Some(treatment) => self.treated(treatment),
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(Flow::Continue(()))
    }

    fn untreated(&mut self) -> Result<Flow, String> {
        match self.run(&[]) {
            Ok(measured) => self.series.untreated.push(measured),
            Err(Failed::Stopped(why)) => return Ok(self.stop(why)),
            Err(Failed::Refused(why) | Failed::Program(why))
                if self.series.untreated.is_empty() =>
            {
                return Err(why);
            }
            Err(Failed::Refused(why) | Failed::Program(why)) => {
                return Ok(self.stop(format!("a run without treatments failed: {why}")));
            }
        }
        Ok(Flow::Continue(()))
    }

    fn treated(&mut self, treatment: &'a Treatment) -> Flow {
        let why = match self.run(&[treatment]) {
            Ok(measured) if measured.changes.is_empty() => {
                "the program has nothing that it changes, or has it set already".to_owned()
            }
            Ok(measured) => {
                let mut rows = self.series.treated.iter_mut();
                if let Some((_, runs)) = rows.find(|(t, _)| std::ptr::eq(*t, treatment)) {
                    runs.push(measured);
                }
                return Flow::Continue(());
            }
            Err(Failed::Stopped(why)) => return self.stop(why),
            Err(Failed::Refused(why)) => why,
            Err(Failed::Program(why)) => format!("with it, {}", why.replace("\n  ", ". ")),
        };
        self.series
            .treated
            .retain(|(t, _)| !std::ptr::eq(*t, treatment));
        self.series.not_tried.push((treatment, why));
        Flow::Continue(())
    }

    fn together(&mut self, best: Vec<&'a Treatment>) -> Result<(), String> {
        let mut runs = Vec::new();
        for _ in 0..self.limits.rounds {
            match self.run(&best) {
                Ok(measured) => runs.push(measured),
                Err(Failed::Stopped(why)) => {
                    let _ = self.stop(why);
                    break;
                }
                Err(Failed::Refused(why) | Failed::Program(why)) => {
                    let _ = self.stop(format!("with the best treatments together, {why}"));
                    break;
                }
            }
            if self.untreated()?.is_break() {
                break;
            }
        }
        self.series.together = Some((best, runs));
        Ok(())
    }

    fn run(&mut self, treatments: &[&Treatment]) -> Result<Measured, Failed> {
        if let Some(most) = self
            .limits
            .max_runs
            .filter(|most| self.series.runs >= *most)
        {
            return Err(Failed::Stopped(format!(
                "--max-runs allows {}",
                counted(u64::from(most), "run")
            )));
        }
        if let Some(budget) = self.limits.budget
            && self.began.elapsed() + self.longest > budget
        {
            let minutes = crate::base::units::significant(budget.as_secs_f64() / 60.0);
            return Err(Failed::Stopped(format!(
                "--budget allows {minutes} minutes"
            )));
        }
        let start = Instant::now();
        let measured = self.runner.run(treatments);
        self.longest = self.longest.max(start.elapsed());
        self.series.runs += 1;
        measured
    }

    fn stop(&mut self, why: String) -> Flow {
        self.series.stopped = Some(why);
        Flow::Break(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::trial::treatment::built_in;

    /// The length of a step with these treatments, in the run of this number.
    type Answer<'f> = dyn Fn(&[&str], u32) -> Result<f64, Failed> + 'f;

    /// A program whose steps take as long as the tests want.
    pub(crate) struct Fake<'f> {
        pub(crate) answer: &'f Answer<'f>,
        pub(crate) log: Vec<String>,
    }

    impl RunProgram for Fake<'_> {
        fn run(&mut self, treatments: &[&Treatment]) -> Result<Measured, Failed> {
            let names: Vec<&str> = treatments.iter().map(|t| t.name.as_str()).collect();
            let step_ns = (self.answer)(&names, self.log.len() as u32);
            self.log.push(names.join("+"));
            Ok(Measured {
                step_ns: step_ns?,
                steps: 20,
                values: Some(Values::losses(&[1.0])),
                compiling: false,
                peak_memory_bytes: None,
                changes: names.iter().map(|name| ((*name).to_owned(), 1)).collect(),
                lines: Vec::new(),
            })
        }
    }

    pub(crate) fn named(names: &[&str]) -> Vec<Treatment> {
        let all = built_in().unwrap_or_else(|c| panic!("{}", c.render(false)));
        let named = names
            .iter()
            .map(|name| all.iter().find(|t| t.name == *name).unwrap().clone());
        named.collect()
    }

    const LIMITS: Limits = Limits {
        rounds: 3,
        max_runs: None,
        budget: None,
    };

    #[test]
    fn runs_alternate_and_the_best_run_together() {
        let treatments = named(&["tf32", "set-to-none"]);
        let given: Vec<&Treatment> = treatments.iter().collect();
        let mut fake = Fake {
            answer: &|_, _| Ok(1e6),
            log: Vec::new(),
        };
        let made = series(&given, LIMITS, &mut fake, |_| given.clone()).unwrap();
        assert_eq!(
            fake.log.join(" "),
            " tf32 set-to-none  tf32 set-to-none  set-to-none  tf32 tf32+set-to-none  tf32+set-to-none  \
             tf32+set-to-none "
        );
        assert_eq!((made.runs, made.untreated.len()), (16, 7));
        assert_eq!(made.together.unwrap().1.len(), 3);
    }

    #[test]
    fn treatments_that_fail_are_not_tried_again() {
        let treatments = named(&["tf32", "set-to-none"]);
        let given: Vec<&Treatment> = treatments.iter().collect();
        let mut fake = Fake {
            answer: &|names, _| match names {
                ["tf32"] => Err(Failed::Refused("no GPU".to_owned())),
                _ => Ok(1e6),
            },
            log: Vec::new(),
        };
        let made = series(&given, LIMITS, &mut fake, |_| Vec::new()).unwrap();
        assert_eq!(fake.log.iter().filter(|run| *run == "tf32").count(), 1);
        let [(treatment, why)] = made.not_tried.as_slice() else {
            panic!("{:?}", made.not_tried)
        };
        assert_eq!((treatment.name.as_str(), why.as_str()), ("tf32", "no GPU"));
    }

    #[test]
    fn limits_end_the_series_with_what_was_measured() {
        let treatments = named(&["tf32"]);
        let given: Vec<&Treatment> = treatments.iter().collect();
        let mut fake = Fake {
            answer: &|_, _| Ok(1e6),
            log: Vec::new(),
        };
        let limits = Limits {
            max_runs: Some(4),
            ..LIMITS
        };
        let made = series(&given, limits, &mut fake, |_| Vec::new()).unwrap();
        assert_eq!(made.stopped.as_deref(), Some("--max-runs allows 4 runs"));
        assert_eq!(made.untreated.len() + made.treated[0].1.len(), 4);
        let mut fake = Fake {
            answer: &|_, at| match at {
                2 => Err(Failed::Stopped("interrupted".to_owned())),
                _ => Ok(1e6),
            },
            log: Vec::new(),
        };
        let made = series(&given, LIMITS, &mut fake, |_| Vec::new()).unwrap();
        assert_eq!(made.stopped.as_deref(), Some("interrupted"));
        let mut fake = Fake {
            answer: &|_, _| Err(Failed::Program("exit status 1".to_owned())),
            log: Vec::new(),
        };
        assert_eq!(
            series(&given, LIMITS, &mut fake, |_| Vec::new()).err(),
            Some("exit status 1".to_owned())
        );
    }
}
