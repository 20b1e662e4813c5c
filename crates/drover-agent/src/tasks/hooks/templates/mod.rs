//! Hook `templates`: files that are rendered before a task starts, and again when what they use changes.
//!
//! `template_file` is one template with what is known of its file; `rendering` makes text of it; `templates` is the
//! whole of a task's, over all its runs: it says what is missing before a start, and what follows on a change.
//!
//! Invariants: a task sees the old text or the new one; what cannot be rendered again leaves the text as it is; one
//! change leads to one reaction.

mod rendering;
mod template_file;
#[expect(clippy::module_inception, reason = "the whole of a task's templates is named so")]
mod templates;

pub(super) use template_file::is_the_agents;
pub(crate) use templates::{ChangeCommand, Preparation, TemplateNews, Templates};
