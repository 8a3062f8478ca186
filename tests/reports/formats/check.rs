//! Checks that a report is well-formed, per format. Each function panics if it is not.

use comrak::nodes::NodeValue;
use comrak::{Arena, Options, parse_document};

/// GitHub's dialect, plus extensions that stray text could trigger.
pub(crate) fn github() -> Options<'static> {
    let mut options = Options::default();
    options.extension.table = true;
    options.extension.autolink = true;
    options.extension.strikethrough = true;
    options.extension.tasklist = true;
    options.extension.footnotes = true;
    options.extension.math_dollars = true;
    options
}

/// A Markdown document, rendered.
#[derive(Default)]
pub(crate) struct Rendered {
    pub(crate) links: Vec<String>,
    /// All text outside code.
    pub(crate) text: String,
}

/// Checks that GitHub and GitLab render the Markdown as intended.
pub(crate) fn markdown(text: &str) -> Rendered {
    let arena = Arena::new();
    let mut rendered = Rendered::default();
    for node in parse_document(&arena, text, &github()).descendants() {
        match &node.data.borrow().value {
            NodeValue::HtmlBlock(html) => {
                for line in html.literal.lines() {
                    assert!(is_allowed_html(line), "{line:?}");
                }
            }
            NodeValue::HtmlInline(html) => {
                assert!(matches!(html.as_str(), "<sub>" | "</sub>"), "{html}");
            }
            NodeValue::Link(link) => rendered.links.push(link.url.clone()),
            NodeValue::Text(text) => {
                no_mention(text);
                rendered.text.push_str(text);
                rendered.text.push('\n');
            }
            NodeValue::CodeBlock(code) if code.info == "mermaid" => mermaid(&code.literal),
            bad @ (NodeValue::Image(_)
            | NodeValue::FootnoteDefinition(_)
            | NodeValue::FootnoteReference(_)
            | NodeValue::TaskItem(_)
            | NodeValue::Math(_)) => panic!("{bad:?}"),
            _ => {}
        }
    }
    let opened = text.lines().filter(|l| *l == "<details>").count();
    let closed = text.lines().filter(|l| *l == "</details>").count();
    assert_eq!(opened, closed, "a fold is not closed");
    whole_tables(text);
    shown(text, &['\n']);
    rendered
}

/// Checks that the rows of each table have as many cells as its head. Renderers pad short rows and drop extra cells
/// silently, so the cells are counted in the text.
pub(crate) fn whole_tables(text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    for table in lines.chunk_by(|a, b| a.starts_with('|') == b.starts_with('|')) {
        if !table[0].starts_with('|') {
            continue;
        }
        assert!(table.len() > 2, "a table without rows: {table:?}");
        let widths: Vec<usize> = table.iter().map(|row| cells(row)).collect();
        assert!(widths.iter().all(|w| *w == widths[0]), "{table:#?}");
    }
}

fn no_mention(text: &str) {
    for (at, _) in text.match_indices('@') {
        let next = text[at + 1..].chars().next();
        assert!(!next.is_some_and(char::is_alphanumeric), "{text:?}");
    }
}

fn is_allowed_html(line: &str) -> bool {
    let summary = line
        .strip_prefix("<summary>")
        .and_then(|rest| rest.strip_suffix("</summary>"));
    line.is_empty()
        || line == "<details>"
        || line == "</details>"
        || summary.is_some_and(|text| !text.contains(['<', '>']))
}

fn cells(row: &str) -> usize {
    assert!(row.ends_with('|'), "{row}");
    let unescaped = row.replace("\\\\", "").replace("\\|", "");
    unescaped.matches('|').count() - 1
}

/// Checks that a chart is a pie with one number per quoted label.
fn mermaid(chart: &str) {
    let mut lines = chart.lines();
    let head = lines.next().unwrap();
    assert!(head.starts_with("pie showData title "), "{head}");
    let mut labels = Vec::new();
    for line in lines {
        let (label, value) = line
            .strip_prefix("    \"")
            .and_then(|rest| rest.split_once("\" : "))
            .unwrap_or_else(|| panic!("{line:?}"));
        let special = ['"', '#', ';', '%', '<', '>', '&', '`', '{', '}', '@', '|'];
        assert!(!label.contains(special), "{line:?}");
        assert!(value.parse::<f64>().unwrap() >= 0.0, "{line:?}");
        assert!(!labels.contains(&label), "{label:?} twice");
        labels.push(label);
    }
    assert!(labels.len() > 1, "{chart}");
}

/// Checks that no character moves the cursor or hides or reorders text.
pub(super) fn shown(text: &str, allowed: &[char]) {
    let bad = text.chars().find(|c| {
        let hidden = matches!(u32::from(*c), 0x200b..=0x200f | 0x202a..=0x202e | 0x2066..=0x2069);
        (c.is_control() || hidden) && !allowed.contains(c)
    });
    assert!(bad.is_none(), "{bad:?} in {text:.300}");
}

/// Elements of the page and of Markdown.
const ELEMENTS: &[&str] = &[
    "!doctype",
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "blockquote",
    "a",
    "div",
    "h1",
    "h2",
    "h3",
    "button",
    "nav",
    "main",
    "p",
    "dl",
    "dt",
    "dd",
    "small",
    "section",
    "ol",
    "ul",
    "li",
    "header",
    "span",
    "details",
    "summary",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "i",
    "b",
    "code",
    "pre",
    "figure",
    "figcaption",
    "label",
    "input",
    "select",
    "option",
    "noscript",
    "footer",
    "script",
    "br",
    "strong",
    "em",
];
const ATTRIBUTES: &[&str] = &[
    "lang",
    "charset",
    "http-equiv",
    "content",
    "name",
    "id",
    "class",
    "href",
    "style",
    "role",
    "tabindex",
    "type",
    "hidden",
    "rel",
    "scope",
    "data-zoom",
    "placeholder",
    "autocomplete",
    "spellcheck",
    "value",
    "start",
    "align",
];

/// Checks that a page contains the expected elements only, refers to nothing outside except by links,
/// and does not use the network.
pub(super) fn html(page: &str) {
    let (before, data) = page
        .split_once("<script type=\"application/json\" id=\"data\">")
        .unwrap();
    let (data, script) = data.split_once("</script>\n<script>").unwrap();
    assert!(!data.contains(['<', '>', '&']), "the data are no markup");
    serde_json::from_str::<serde_json::Value>(data).unwrap();
    let (_, after) = script.rsplit_once("</script>").unwrap();
    let (head, body) = before.split_once("<style>").unwrap();
    let (_, body) = body.split_once("</style>").unwrap();
    for part in [head, body, after] {
        tags(part);
    }
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
    assert!(head.contains(policy));
    shown(page, &['\n']);
}

/// Checks a page without scripts.
pub(super) fn page_without_script(page: &str) {
    let (head, body) = page.split_once("<style>").unwrap();
    let (_, body) = body.split_once("</style>").unwrap();
    for part in [head, body] {
        tags(part);
    }
    assert!(!body.contains("<script"));
    shown(page, &['\n']);
}

fn tags(html: &str) {
    for (at, _) in html.match_indices('<') {
        let tag = html[at + 1..].split('>').next().unwrap();
        let tag = tag.strip_prefix('/').unwrap_or(tag);
        let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(ELEMENTS.contains(&name), "<{tag}>");
        while let Some((attribute, value)) = rest.split_once('"') {
            let attribute = attribute.trim().trim_end_matches('=');
            let attribute = attribute.rsplit(' ').next().unwrap();
            let known = ATTRIBUTES.contains(&attribute) || attribute.starts_with("aria-");
            assert!(known, "{attribute:?} in <{tag}>");
            let (value, after) = value.split_once('"').unwrap();
            if attribute == "href" {
                let value = value.replace("&#x2f;", "/");
                let safe = value.starts_with('#') || value.starts_with("https://");
                assert!(safe, "{value}");
            }
            rest = after;
        }
    }
}

/// Checks that every line is a valid GitHub command, or the program's last line.
pub(super) fn commands(text: &str, name: &str) {
    for line in text.lines() {
        let Some(command) = line.strip_prefix("::") else {
            assert!(line.contains(" not annotated: "), "{name}: {line}");
            continue;
        };
        let (properties, message) = command.split_once("::").unwrap();
        let (level, properties) = properties.split_once(' ').unwrap();
        assert!(
            matches!(level, "error" | "warning" | "notice"),
            "{name}: {line}"
        );
        for property in properties.split(',') {
            let (key, value) = property.split_once('=').unwrap();
            assert!(matches!(key, "file" | "line" | "title"), "{name}: {line}");
            assert!(!value.contains(':') && !value.is_empty(), "{name}: {line}");
        }
        assert!(
            !message.is_empty() && !line.contains("##["),
            "{name}: {line}"
        );
    }
}
