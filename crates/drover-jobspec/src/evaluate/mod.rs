//! Evaluates HCL expressions.
//!
//! Input: hcl-edit's tree and the values of variables and locals. The value of a reference that only the node can
//! resolve, such as `attr.kernel.name` or `NOMAD_PORT_http`, is its own text as an interpolation: the agent replaces
//! that when the task starts. So functions can put such references together, and cannot look into them.

mod budget;
mod expression;
mod operator;
mod scope;
mod template;

pub(crate) use budget::Budget;
pub(crate) use expression::offset;
pub(crate) use operator::equal;
pub(crate) use scope::{Local, Scope};
