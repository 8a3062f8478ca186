//! The escaping functions: no text of a profile may end a cell, a code span or an element.
#![no_main]

use pyprof_advise::base::text;

libfuzzer_sys::fuzz_target!(|raw: &str| {
    let cell = text::md(raw);
    assert!(!cell.contains(char::is_control), "{cell:?}");
    assert!(!cell.contains(['<', '\n']), "{cell:?}");
    let code = text::md_code(raw);
    assert!(!code.contains(char::is_control), "{code:?}");
    let prose = text::md_prose(raw);
    assert!(!prose.contains("<script"), "{prose:?}");
    let html = text::html(raw);
    assert!(!html.contains(['<', '"']), "{html:?}");
    let plain = text::plain(raw);
    assert!(!plain.contains(char::is_control), "{plain:?}");
    assert!(text::clip(raw, 20).chars().count() <= 20);
    let _ = text::without_home(raw);
});
