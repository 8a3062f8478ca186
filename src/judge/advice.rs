//! What a rule says once it fires.

use super::edit::{Edit, RuleEdit};
use super::expr::{EvalContext, Expr, Undecided, Uses};
use super::template::Template;
use crate::base::glob::Glob;

/// The sentences of a rule, and the changes that it suggests.
#[derive(Debug, Clone, Default)]
pub struct Advice {
    /// Template of the message that describes the problem.
    pub message: Template,
    /// Template of the explanation why the problem costs time.
    pub why: Template,
    /// The variants of the advice; the first one whose condition holds is printed.
    pub fixes: Vec<Fix>,
    /// Changes of one source line that it suggests.
    pub edits: Vec<RuleEdit>,
    /// Links to further reading.
    pub references: Vec<String>,
}

/// A variant of the advice of a rule.
#[derive(Debug, Clone)]
pub struct Fix {
    /// Condition under which it applies; `None`: always.
    pub when: Option<Expr>,
    /// Rules whose findings it repairs as well, besides those that every variant repairs.
    pub also_fixes: Vec<Glob>,
    /// Template of the advice.
    pub text: Template,
}

impl Advice {
    /// The first variant of the fix whose condition holds, with its index; `None` if none does.
    ///
    /// # Errors
    /// The failure of a condition.
    pub(super) fn fix(&self, context: &EvalContext<'_>) -> Result<Option<(usize, &Fix)>, String> {
        for (index, fix) in self.fixes.iter().enumerate() {
            if holds(fix.when.as_ref(), context)? {
                return Ok(Some((index, fix)));
            }
        }
        Ok(None)
    }

    /// The edits whose condition holds, as with [`fix`](Self::fix).
    ///
    /// # Errors
    /// The failure of a condition.
    pub(super) fn edits(&self, context: &EvalContext<'_>) -> Result<Vec<Edit>, String> {
        let mut edits = Vec::new();
        for RuleEdit { when, edit } in &self.edits {
            if holds(when.as_ref(), context)? {
                edits.push(edit.clone());
            }
        }
        Ok(edits)
    }

    /// The sentences: the message, the explanation, and each variant of the fix.
    pub fn sentences(&self) -> impl Iterator<Item = &Template> {
        let fixes = self.fixes.iter().map(|fix| &fix.text);
        [&self.message, &self.why].into_iter().chain(fixes)
    }

    /// The names that the sentences use, without those that their lets use.
    pub(super) fn sentence_uses(&self) -> Uses {
        let mut uses = Uses::default();
        for sentence in self.sentences() {
            uses.extend(&sentence.uses());
        }
        uses
    }
}

/// Whether a condition holds, or there is none. One that an absent fact leaves undecided does not hold.
fn holds(when: Option<&Expr>, context: &EvalContext<'_>) -> Result<bool, String> {
    match when.map_or(Ok(true), |when| context.holds(when)) {
        Ok(holds) => Ok(holds),
        Err(Undecided::Absent(_) | Undecided::NotApplicable) => Ok(false),
        Err(Undecided::Fault(message)) => Err(message),
    }
}
