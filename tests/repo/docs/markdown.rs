//! Writes and checks Markdown.

use comrak::nodes::NodeValue;

/// Text of the program as a table cell: inline code stays code, everything else is escaped.
pub(crate) fn cell(text: &str) -> String {
    let mut out = String::new();
    let mut in_code = false;
    let mut last = ' ';
    let mut rest = text.trim().chars().peekable();
    while let Some(c) = rest.next() {
        let next = rest.peek().copied().unwrap_or(' ');
        match c {
            '`' => in_code = !in_code,
            '|' => out.push('\\'),
            '\n' => {
                out.push(' ');
                continue;
            }
            _ if in_code => {}
            '*' | '[' | ']' | '~' | '$' | '\\' => out.push('\\'),
            '_' if !(last.is_alphanumeric() && next.is_alphanumeric()) => out.push('\\'),
            '<' | '>' | '&' => {
                out.push_str(match c {
                    '<' => "&lt;",
                    '>' => "&gt;",
                    _ => "&amp;",
                });
                last = c;
                continue;
            }
            _ => {}
        }
        out.push(c);
        last = c;
    }
    out
}

/// Names as inline code.
pub(crate) fn codes<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let codes: Vec<String> = names
        .into_iter()
        .map(|name| format!("`{}`", name.as_ref()))
        .collect();
    codes.join(", ")
}

/// A table; numeric columns (`:` at the end of the heading) are aligned to the right.
pub(crate) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let names: Vec<String> = headings
        .iter()
        .map(|h| h.trim_end_matches(':').to_owned())
        .collect();
    let rule: Vec<String> = headings
        .iter()
        .map(|h| if h.ends_with(':') { "---:" } else { "---" }.to_owned())
        .collect();
    let mut out = line(&names) + &line(&rule);
    for row in rows {
        assert_eq!(row.len(), headings.len(), "{row:?}");
        out.push_str(&line(&row));
    }
    out
}

/// A page for inclusion in another: its headings are `levels` deeper, code is unchanged.
pub(crate) fn deeper(page: &str, levels: usize) -> String {
    let mut out = String::new();
    let mut fence = false;
    for line in page.lines() {
        fence ^= line.starts_with("```");
        if !fence && line.starts_with('#') {
            out.push_str(&"#".repeat(levels));
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

fn options() -> comrak::Options<'static> {
    let mut options = comrak::Options::default();
    options.extension.table = true;
    options.extension.strikethrough = true;
    options
}

/// The anchors of a page's headings, and the addresses of its links.
pub(crate) fn anchors_and_links(markdown: &str) -> (Vec<String>, Vec<String>) {
    let arena = comrak::Arena::new();
    let document = comrak::parse_document(&arena, markdown, &options());
    let mut anchors = comrak::Anchorizer::new();
    let (mut headings, mut links) = (Vec::new(), Vec::new());
    for node in document.descendants() {
        match &node.data.borrow().value {
            NodeValue::Heading(_) => headings.push(anchors.anchorize(&plain(node))),
            NodeValue::Link(link) | NodeValue::Image(link) => links.push(link.url.clone()),
            _ => {}
        }
    }
    (headings, links)
}

/// Mistakes that would not render as intended: raw HTML, ragged tables, unclosed code blocks.
pub(crate) fn complaints(markdown: &str) -> Vec<String> {
    let arena = comrak::Arena::new();
    let document = comrak::parse_document(&arena, markdown, &options());
    let mut complaints = Vec::new();
    for node in document.descendants() {
        let data = node.data.borrow();
        let line = data.sourcepos.start.line;
        match &data.value {
            NodeValue::HtmlInline(html) => complaints.push(format!("line {line}: HTML: {html}")),
            NodeValue::HtmlBlock(html) if !html.literal.starts_with("<!--") => {
                complaints.push(format!("line {line}: HTML: {}", html.literal.trim()));
            }
            NodeValue::Emph | NodeValue::Strikethrough if in_cell(node) => {
                complaints.push(format!("line {line}: emphasis in a table: {}", plain(node)));
            }
            NodeValue::Text(text) if text.contains("```") => {
                complaints.push(format!("line {line}: a stray fence"));
            }
            _ => {}
        }
    }
    complaints.extend(ragged(markdown));
    complaints
}

fn in_cell<'a>(node: &'a comrak::nodes::AstNode<'a>) -> bool {
    node.ancestors()
        .any(|n| matches!(n.data.borrow().value, NodeValue::TableCell))
}

fn plain<'a>(node: &'a comrak::nodes::AstNode<'a>) -> String {
    let mut text = String::new();
    for inner in node.descendants() {
        match &inner.data.borrow().value {
            NodeValue::Text(words) => text.push_str(words),
            NodeValue::Code(code) => text.push_str(&code.literal),
            _ => {}
        }
    }
    text
}

/// Rows with more or fewer cells than their table, in which renderers silently drop or add cells.
fn ragged(markdown: &str) -> Vec<String> {
    let mut width = None;
    let mut fence = false;
    let mut complaints = Vec::new();
    for (number, line) in (1..).zip(markdown.lines()) {
        fence ^= line.starts_with("```");
        if fence || !line.starts_with('|') {
            width = None;
            continue;
        }
        let cells = line.replace("\\|", "").matches('|').count();
        if *width.get_or_insert(cells) != cells {
            complaints.push(format!("line {number}: a row of another width: {line}"));
        }
    }
    complaints
}

/// The fenced code blocks of a document: language and text.
pub(crate) fn blocks(markdown: &str) -> Vec<(String, String)> {
    let arena = comrak::Arena::new();
    let document = comrak::parse_document(&arena, markdown, &options());
    let block = |value: &NodeValue| match value {
        NodeValue::CodeBlock(block) => Some((block.info.clone(), block.literal.clone())),
        _ => None,
    };
    document
        .descendants()
        .filter_map(|node| block(&node.data.borrow().value))
        .collect()
}

/// The inline code of a document.
pub(crate) fn spans(markdown: &str) -> Vec<String> {
    let arena = comrak::Arena::new();
    let document = comrak::parse_document(&arena, markdown, &options());
    let span = |value: &NodeValue| match value {
        NodeValue::Code(code) => Some(code.literal.clone()),
        _ => None,
    };
    document
        .descendants()
        .filter_map(|node| span(&node.data.borrow().value))
        .collect()
}

/// The document with the text between `<!-- name -->` and `<!-- /name -->` replaced.
pub(crate) fn with_block(document: &str, name: &str, body: &str) -> String {
    let (open, close) = (format!("<!-- {name} -->\n"), "<!-- /");
    let (before, rest) = document
        .split_once(&open)
        .unwrap_or_else(|| panic!("no `{}`", open.trim()));
    let at = rest
        .find(close)
        .unwrap_or_else(|| panic!("`{}` is never closed", open.trim()));
    format!("{before}{open}{body}{}", &rest[at..])
}

#[test]
fn cells_keep_their_text() {
    assert_eq!(
        cell("a|b `c|d_` 2*m*n <x> [n] _y x_y"),
        "a\\|b `c\\|d_` 2\\*m\\*n &lt;x&gt; \\[n\\] \\_y x_y"
    );
    let text = format!("| a |\n| --- |\n| {} |\n", cell("*a* <b> `x|y` _z_"));
    assert!(complaints(&text).is_empty(), "{:?}", complaints(&text));
}

#[test]
fn mistakes_in_pages_are_found() {
    for bad in [
        "a <b>c</b>",
        "| a |\n| --- |\n| b | c |\n",
        "| a |\n| --- |\n| *b* |\n",
    ] {
        assert!(!complaints(bad).is_empty(), "{bad}");
    }
}

#[test]
fn blocks_are_replaced_and_code_keeps_its_comments() {
    assert_eq!(
        with_block("a\n<!-- x -->\nold\n<!-- /x -->\nb", "x", "new\n"),
        "a\n<!-- x -->\nnew\n<!-- /x -->\nb"
    );
    assert_eq!(
        deeper("# a\n```py\n# b\n```\n## c", 2),
        "### a\n```py\n# b\n```\n#### c\n"
    );
}
