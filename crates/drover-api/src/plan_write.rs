//! Which writes carry one plan out.

use std::fmt;
use std::str::FromStr;

/// The writes of a plan, as each of them names them: annotation `drover.dev/plan` of an Allocation or a Deployment, and
/// `status.plan` of a Deployment. Who follows the cluster can tell by it what belongs together. As text: the id of the
/// evaluation, a slash, and the number of writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanWrite {
    /// The evaluation whose plan it is.
    pub eval_id: String,
    /// How many writes carry the plan out, this one included, where none fails.
    pub writes: u32,
}

impl fmt::Display for PlanWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.eval_id, self.writes)
    }
}

/// A text that names no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no evaluation with a number of writes, as 8f2e…/50")]
pub struct NoPlanWrite(String);

impl FromStr for PlanWrite {
    type Err = NoPlanWrite;

    fn from_str(text: &str) -> Result<Self, NoPlanWrite> {
        let wrong = || NoPlanWrite(text.to_owned());
        let (eval_id, writes) = text.split_once('/').ok_or_else(wrong)?;
        let writes = writes.parse().ok().filter(|writes| *writes > 0).ok_or_else(wrong)?;
        Ok(Self { eval_id: eval_id.to_owned(), writes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_is_written_and_nothing_else_is_read() {
        let plan = PlanWrite { eval_id: "8f2e".to_owned(), writes: 50 };
        assert_eq!(plan.to_string().parse(), Ok(plan));
        for wrong in ["", "8f2e", "8f2e/", "8f2e/0", "8f2e/-1", "8f2e/x", "8f2e/5/5"] {
            assert!(wrong.parse::<PlanWrite>().is_err(), "{wrong}");
        }
    }
}
