//! Draws what stood on a screen as an SVG that moves by CSS keyframes, without a script. Who does not want movement,
//! and a program that knows none, sees the end.

use std::collections::BTreeMap;

use super::frames::{COLUMNS, Film, FrameRun, ROWS, Span};

/// Width of a column, in tenths of a pixel: 0.6 of the size of the letters.
const COLUMN: u32 = 84;
/// Height of a row, in pixels.
const ROW: u32 = 18;
/// Around the text, in pixels.
const EDGE: u32 = 16;

/// The picture.
pub(super) fn draw(film: &Film) -> String {
    let mut names: BTreeMap<(u64, Option<u64>), String> = BTreeMap::new();
    for span in &film.spans {
        let next = names.len();
        names.entry((span.from, span.until)).or_insert_with(|| format!("k{next}"));
    }
    let (width, height) = (u32::from(COLUMNS) * COLUMN / 10 + 2 * EDGE, u32::from(ROWS) * ROW + 2 * EDGE);
    let mut parts = vec![format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-label=\"A terminal: version 1 of a job runs, one canary of version 2 starts, is promoted, and replaces the others\">\n<style>\n\
         text{{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#d7dae0;white-space:pre}}\n\
         g{{opacity:0}}.e{{opacity:1}}.b{{font-weight:bold}}.c1{{fill:#e06c75}}.c2{{fill:#98c379}}.c3{{fill:#e5c07b}}.c4{{fill:#61afef}}\n"
    )];
    parts.extend(names.iter().map(|((from, until), name)| keyframes(film.length, *from, *until, name)));
    parts.push("@media (prefers-reduced-motion:reduce){g{animation:none!important}}\n</style>\n".to_owned());
    parts.push(format!("<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#16181d\"/>\n"));
    parts.extend(film.spans.iter().map(|span| group(span, &names[&(span.from, span.until)])));
    parts.push("</svg>\n".to_owned());
    parts.concat()
}

/// Shown from a time to another, once in each turn of the film.
fn keyframes(length: u64, from: u64, until: Option<u64>, name: &str) -> String {
    let hidden = if from > 0 { "0%{opacity:0}" } else { "" };
    let end = until.map(|until| format!("{}{{opacity:0}}", percent(until, length))).unwrap_or_default();
    format!(
        "@keyframes {name}{{{hidden}{}{{opacity:1}}{end}}}.{name}{{animation:{name} {length}ms step-end infinite}}\n",
        percent(from, length)
    )
}

fn percent(at: u64, length: u64) -> String {
    let thousandths = at * 100_000 / length.max(1);
    format!("{}.{:03}%", thousandths / 1000, thousandths % 1000)
}

fn group(span: &Span, name: &str) -> String {
    let (class, opacity) = if span.until.is_none() { (" e", 1) } else { ("", 0) };
    let y = EDGE + u32::from(span.row) * ROW + 14;
    let texts: String = span.runs.iter().map(|run| letters(run, y)).collect();
    format!("<g class=\"{name}{class}\" opacity=\"{opacity}\">{texts}</g>\n")
}

fn letters(run: &FrameRun, y: u32) -> String {
    let tenths = EDGE * 10 + u32::from(run.column) * COLUMN;
    let mut class = run.look.colour.map(|colour| format!("c{colour}")).unwrap_or_default();
    if run.look.is_bold {
        class += " b";
    }
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{}\"", class.trim()) };
    let mut text = format!("<text x=\"{}.{}\" y=\"{y}\"{class} xml:space=\"preserve\">", tenths / 10, tenths % 10);
    for letter in run.text.chars() {
        match letter {
            '&' => text += "&amp;",
            '<' => text += "&lt;",
            '>' => text += "&gt;",
            other => text.push(other),
        }
    }
    text + "</text>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::frames::Look;

    fn span(text: &str, from: u64, until: Option<u64>) -> Span {
        let look = Look { colour: None, is_bold: false };
        Span { row: 1, runs: vec![FrameRun { column: 2, text: text.to_owned(), look }], from, until }
    }

    #[test]
    fn each_content_is_shown_in_its_time() {
        let film = Film { spans: vec![span("a < b", 0, Some(500)), span("end", 500, None)], length: 1000 };
        let picture = draw(&film);
        for part in [
            "@keyframes k0{0.000%{opacity:1}50.000%{opacity:0}}.k0{animation:k0 1000ms step-end infinite}",
            "@keyframes k1{0%{opacity:0}50.000%{opacity:1}}",
            "<g class=\"k0\" opacity=\"0\"><text x=\"32.8\" y=\"48\" xml:space=\"preserve\">a &lt; b</text></g>",
            "<g class=\"k1 e\" opacity=\"1\">",
        ] {
            assert!(picture.contains(part), "no {part} in\n{picture}");
        }
        assert!(!picture.contains("<script"));
    }
}
