//! Templates: strings and heredocs with `${…}` and `%{…}` in them.

use hcl_edit::Span as _;
use hcl_edit::template::{Directive, Element, ForDirective, IfDirective, Strip, Template};

use super::Scope;
use crate::source::Fault;
use crate::value::Value;

/// How a template is written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Layout {
    pub(super) is_heredoc: bool,
    /// Spaces that a heredoc that begins with `<<-` takes off its lines; hcl-edit takes them off the lines outside of
    /// directives only.
    pub(super) indent: usize,
}

/// A part of what a template becomes.
enum Part {
    /// What was written, which a neighbour's `~` may shorten.
    Written(String),
    /// What was computed.
    Computed(String),
    /// Shortens the written text before it.
    StripBefore,
    /// Shortens the written text after it.
    StripAfter,
}

impl Scope<'_> {
    /// A template's text. What only the node knows stays as it is written.
    pub(super) fn render(&self, template: &Template, layout: Layout) -> Result<String, Fault> {
        let mut parts = Vec::new();
        for element in template {
            self.element(element, layout, &mut parts)?;
        }
        let text = join(parts, layout);
        self.budget.bytes(text.len()).map_err(|message| self.fault(start(template.span()), message))?;
        Ok(text)
    }

    fn element(&self, element: &Element, layout: Layout, parts: &mut Vec<Part>) -> Result<(), Fault> {
        let span = element.span().unwrap_or_default();
        self.budget.step().map_err(|message| self.fault(span.start, message))?;
        let (before, result, after) = match element {
            Element::Literal(text) => {
                parts.push(Part::Written(text.value().clone()));
                return Ok(());
            }
            Element::Interpolation(interpolation) if self.is_reference(&interpolation.expr) => {
                parts.push(Part::Computed(self.source.slice(&span).to_owned()));
                return Ok(());
            }
            Element::Interpolation(interpolation) => {
                let text = self.value(&interpolation.expr).and_then(|value| {
                    value.to_text().ok_or_else(|| {
                        self.fault(span.start, format!("`${{…}}` needs a string, and this is {}", value.kind()))
                    })
                });
                (begins(interpolation.strip), text, ends(interpolation.strip))
            }
            Element::Directive(directive) => match &**directive {
                Directive::If(directive) => {
                    (begins(directive.if_expr.strip), self.choose(directive, layout), ends(directive.endif_expr.strip))
                }
                Directive::For(directive) => (
                    begins(directive.for_expr.strip),
                    self.repeat(directive, layout),
                    ends(directive.endfor_expr.strip),
                ),
            },
        };
        parts.extend(before.then_some(Part::StripBefore));
        parts.push(Part::Computed(result?));
        parts.extend(after.then_some(Part::StripAfter));
        Ok(())
    }

    fn choose(&self, directive: &IfDirective, layout: Layout) -> Result<String, Fault> {
        let condition = self.truth(&directive.if_expr.cond_expr)?;
        let end = begins(directive.endif_expr.strip);
        match &directive.else_expr {
            _ if condition => {
                let next = directive.else_expr.as_ref().map_or(end, |otherwise| begins(otherwise.strip));
                self.inner(&directive.if_expr.template, layout, (ends(directive.if_expr.strip), next))
            }
            Some(otherwise) => self.inner(&otherwise.template, layout, (ends(otherwise.strip), end)),
            None => Ok(String::new()),
        }
    }

    fn repeat(&self, directive: &ForDirective, layout: Layout) -> Result<String, Fault> {
        let each = &directive.for_expr;
        let items = self.items(&each.collection_expr)?;
        let mut text = String::new();
        for (key, value) in items {
            let mut names = vec![(each.value_var.to_string(), value)];
            names.extend(each.key_var.as_ref().map(|name| (name.to_string(), key)));
            let strips = (ends(each.strip), begins(directive.endfor_expr.strip));
            text.push_str(&self.with_names(names, || self.inner(&each.template, layout, strips))?);
            self.budget.bytes(text.len()).map_err(|message| self.fault(start(each.template.span()), message))?;
        }
        Ok(text)
    }

    /// The text between two directives, which may strip its start and its end.
    fn inner(&self, template: &Template, layout: Layout, strips: (bool, bool)) -> Result<String, Fault> {
        let mut parts = Vec::from_iter(strips.0.then_some(Part::StripAfter));
        for element in template {
            match element {
                Element::Literal(text) => parts.push(Part::Written(outdented(text.value(), layout.indent))),
                other => self.element(other, layout, &mut parts)?,
            }
        }
        parts.extend(strips.1.then_some(Part::StripBefore));
        Ok(join(parts, layout))
    }

    /// The only interpolation of a template, whose value keeps its type.
    pub(super) fn single(&self, template: &Template) -> Option<Result<Value, Fault>> {
        let interpolation = template.as_single_element()?.as_interpolation()?;
        // As it is written, with its spaces.
        (!self.is_reference(&interpolation.expr)).then(|| self.value(&interpolation.expr))
    }
}

fn start(span: Option<std::ops::Range<usize>>) -> usize {
    span.map_or(0, |span| span.start)
}

/// A text without so many spaces at the start of each line but the first, which follows a directive.
fn outdented(text: &str, indent: usize) -> String {
    let mut lines = text.split('\n');
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |mut text, line| {
        let n_spaces = line.len() - line.trim_start_matches(' ').len();
        text.push('\n');
        text.push_str(&line[n_spaces.min(indent)..]);
        text
    })
}

fn begins(strip: Strip) -> bool {
    matches!(strip, Strip::Start | Strip::Both)
}

fn ends(strip: Strip) -> bool {
    matches!(strip, Strip::End | Strip::Both)
}

/// What of the written text a `~` strips: in a heredoc each line stands for itself, and only the next one is stripped.
fn join(parts: Vec<Part>, layout: Layout) -> String {
    let mut text = String::new();
    // Where the last written text begins, as long as nothing follows it.
    let mut written_at = None;
    let mut strips_next = false;
    for part in parts {
        match part {
            Part::Written(written) => {
                written_at = Some(text.len());
                let end = written.find('\n').filter(|_| layout.is_heredoc).map_or(written.len(), |at| at + 1);
                let (line, rest) = written.split_at(end);
                if std::mem::take(&mut strips_next) {
                    text.push_str(line.trim_start());
                    // HCL takes the indentation off what follows an end of a line, and that end is gone.
                    let is_joined = line.ends_with('\n') && line.trim().is_empty() && !rest.is_empty();
                    text.push_str(&" ".repeat(if is_joined { layout.indent } else { 0 }));
                } else {
                    text.push_str(line);
                }
                text.push_str(rest);
            }
            Part::Computed(computed) => {
                text.push_str(&computed);
                (written_at, strips_next) = (None, false);
            }
            Part::StripBefore => {
                if let Some(start) = written_at.take() {
                    let last = text[start..].trim_end_matches('\n').rfind('\n').filter(|_| layout.is_heredoc);
                    // A line that ends goes with its end; one that does not keeps the end of the line before.
                    let from = match last {
                        _ if layout.is_heredoc && !text.ends_with('\n') => {
                            text[start..].rfind('\n').map_or(start, |at| start + at + 1)
                        }
                        Some(at) => start + at + 1,
                        None => start,
                    };
                    let kept = text[from..].trim_end().len();
                    text.truncate(from + kept);
                }
            }
            Part::StripAfter => strips_next = true,
        }
    }
    text
}
