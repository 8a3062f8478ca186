//! Converts the Markdown of rules (`message`, `why`, `fix`) for formats that do not render Markdown.
//!
//! Rules write Markdown in which text of the profile is escaped. Raw HTML in it becomes text, and
//! only links to the web stay links.

use comrak::nodes::{AstNode, NodeValue};
use comrak::{Arena, Options, markdown_to_html, parse_document};

use crate::base::text;

/// Deepest nesting of lists and emphasis that is kept; deeper text is flattened.
const MAX_DEPTH: usize = 16;

/// Inline text in one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InlineText {
    pub text: String,
    pub code: bool,
}

/// A block of text without line breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Block {
    Paragraph(Vec<InlineText>),
    /// An entry of a list.
    Item(Vec<InlineText>),
    /// Lines of code, without control characters.
    Code(Vec<String>),
}

fn options() -> Options<'static> {
    let mut options = Options::default();
    options.extension.table = true;
    options.render.escape = true;
    options
}

/// Markdown as HTML, with no elements other than those of Markdown.
pub(super) fn html(markdown: &str) -> String {
    text::without_joiners(&markdown_to_html(markdown, &options()))
}

/// Markdown as paragraphs of plain text; code keeps its backticks and listings their lines.
pub(super) fn plain(markdown: &str) -> String {
    let paragraphs: Vec<String> = blocks(markdown)
        .iter()
        .map(|block| match block {
            Block::Paragraph(runs) => line(runs),
            Block::Item(runs) => format!("- {}", line(runs)),
            Block::Code(lines) => lines.join("\n"),
        })
        .collect();
    paragraphs.join("\n\n")
}

fn line(runs: &[InlineText]) -> String {
    runs.iter()
        .map(|run| match run.code {
            true => format!("`{}`", run.text),
            false => run.text.clone(),
        })
        .collect()
}

/// The blocks of a text in order.
pub(super) fn blocks(markdown: &str) -> Vec<Block> {
    let arena = Arena::new();
    let mut blocks = Vec::new();
    gather(
        parse_document(&arena, markdown, &options()),
        false,
        0,
        &mut blocks,
    );
    blocks
}

fn gather<'a>(node: &'a AstNode<'a>, in_item: bool, depth: usize, blocks: &mut Vec<Block>) {
    let data = node.data();
    match &data.value {
        NodeValue::CodeBlock(code) => {
            blocks.push(Block::Code(
                code.literal.lines().map(text::code_line).collect(),
            ));
        }
        NodeValue::HtmlBlock(html) => blocks.push(Block::Paragraph(vec![InlineText {
            text: text::plain(&html.literal),
            code: false,
        }])),
        NodeValue::Paragraph | NodeValue::Heading(_) | NodeValue::TableRow(_) => {
            let mut runs = Vec::new();
            inline(node, 0, &mut runs);
            blocks.push(if in_item {
                Block::Item(runs)
            } else {
                Block::Paragraph(runs)
            });
        }
        other => {
            let in_item = in_item || matches!(other, NodeValue::Item(_));
            if depth < MAX_DEPTH {
                for child in node.children() {
                    gather(child, in_item, depth + 1, blocks);
                }
            }
        }
    }
}

fn inline<'a>(node: &'a AstNode<'a>, depth: usize, runs: &mut Vec<InlineText>) {
    for child in node.children() {
        let data = child.data();
        let (text, code) = match &data.value {
            NodeValue::Text(text) => (text.to_string(), false),
            NodeValue::HtmlInline(html) => (html.clone(), false),
            NodeValue::Code(code) => (code.literal.clone(), true),
            NodeValue::SoftBreak | NodeValue::LineBreak => (" ".to_owned(), false),
            _ => {
                if depth < MAX_DEPTH {
                    inline(child, depth + 1, runs);
                }
                continue;
            }
        };
        let text = text::without_joiners(&text).replace(char::is_control, "");
        match runs.last_mut() {
            Some(last) if !last.code && !code => last.text.push_str(&text),
            _ => runs.push(InlineText { text, code }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIX: &str = "Use `a|b` for *x\\_y* &lt;here&gt;:\n\n```python\nif x:\n    y()\n```\n\n- one\n- \
                       two <b>bold</b> [l](javascript:alert(1))";

    #[test]
    fn plain_text_keeps_words_code_and_lists() {
        assert_eq!(
            plain(FIX),
            "Use `a|b` for x_y <here>:\n\nif x:\n    y()\n\n- one\n\n- two <b>bold</b> l"
        );
    }

    #[test]
    fn html_contains_only_elements_of_markdown() {
        let html = html(FIX);
        assert!(
            html.contains("<code>a|b</code> for <em>x_y</em> &lt;here&gt;"),
            "{html}"
        );
        assert!(html.contains("two &lt;b&gt;bold&lt;/b&gt;"), "{html}");
        assert!(!html.contains("javascript"), "{html}");
    }
}
