//! A job file as it is written.

use hcl_edit::structure::Body;
use hcl_edit::{Decorated, Ident, Span as _};

use crate::source::{Fault, Source};

/// Parses a file.
pub(super) fn parse(source: Source<'_>) -> Result<Body, Fault> {
    hcl_edit::parser::parse_body(source.text).map_err(|error| {
        let location = error.location();
        let mut fault = source.fault(0, format!("is no HCL: {}", error.message()));
        (fault.line, fault.column) = (location.line(), location.column());
        fault
    })
}

/// Where a name begins.
pub(super) fn start(name: &Decorated<Ident>) -> usize {
    name.span().map_or(0, |span| span.start)
}
