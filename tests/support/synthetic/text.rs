//! The syntax of a description: lines with nested lines, and the small values in a line.

/// A line number and the mistake in that line.
pub(super) type Wrong = (usize, String);

/// A command and the lines that belong to it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) text: String,
    pub(super) below: Vec<Line>,
}

/// Parses a description into nested lines.
pub(super) fn lines(description: &str) -> Result<Vec<Line>, Wrong> {
    // (indent, lines at that depth); a level closes when a line is less indented.
    let mut levels: Vec<(usize, Vec<Line>)> = vec![(0, Vec::new())];
    for (index, raw) in description.lines().enumerate() {
        let number = index + 1;
        let code = without_comment(raw).trim_end();
        let text = code.trim_start();
        if text.is_empty() {
            continue;
        }
        let indent = code.len() - text.len();
        if code[..indent].contains('\t') {
            return Err((number, "indented with a tab; use spaces".into()));
        }
        while levels.last().is_some_and(|(depth, _)| *depth > indent) {
            close(&mut levels);
        }
        if levels.last().is_some_and(|(depth, _)| indent > *depth) {
            match levels.last().and_then(|(_, lines)| lines.last()) {
                None => return Err((number, "the first line must not be indented".into())),
                Some(above) if !above.below.is_empty() => {
                    return Err((number, "indentation fits no line above".into()));
                }
                Some(_) => levels.push((indent, Vec::new())),
            }
        }
        if let Some((_, lines)) = levels.last_mut() {
            lines.push(Line {
                number,
                text: text.to_owned(),
                below: Vec::new(),
            });
        }
    }
    while levels.len() > 1 {
        close(&mut levels);
    }
    Ok(levels.pop().map(|(_, lines)| lines).unwrap_or_default())
}

fn close(levels: &mut Vec<(usize, Vec<Line>)>) {
    if let Some((_, done)) = levels.pop()
        && let Some(above) = levels.last_mut().and_then(|(_, lines)| lines.last_mut())
    {
        above.below.extend(done);
    }
}

/// Kernel names contain `{lambda()#1}`: only a `#` between blanks starts a comment.
fn without_comment(raw: &str) -> &str {
    if raw.trim_start().starts_with('#') {
        return "";
    }
    raw.find(" # ").map_or(raw, |at| &raw[..at])
}

/// Nanoseconds of `12.5us`.
pub(super) fn time(word: &str) -> Result<i64, String> {
    scaled(word, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])
        .ok_or_else(|| format!("`{word}` is not a time; write 12.5us"))
}

/// Bytes of `8`, `2MiB`.
pub(super) fn size(word: &str) -> Result<i64, String> {
    const UNITS: [(&str, f64); 8] = [
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("B", 1.0),
        ("", 1.0),
    ];
    scaled(word, &UNITS).ok_or_else(|| format!("`{word}` is not a size; write 33.5MB"))
}

/// A rate per second: `1530MHz`, `898GB/s`.
pub(super) fn rate(word: &str) -> Result<i64, String> {
    match word.strip_suffix("/s") {
        Some(bytes) => size(bytes),
        None => scaled(word, &[("MHz", 1e6), ("GHz", 1e9), ("", 1.0)])
            .ok_or_else(|| format!("`{word}` is not a rate; write 1530MHz or 898GB/s")),
    }
}

fn scaled(word: &str, units: &[(&str, f64)]) -> Option<i64> {
    units.iter().find_map(|(unit, factor)| {
        let number: f64 = word.strip_suffix(unit)?.parse().ok()?;
        (number >= 0.0).then_some((number * factor).round() as i64)
    })
}

/// A whole number.
pub(super) fn int(word: &str) -> Result<i64, String> {
    word.parse()
        .map_err(|_| format!("`{word}` is not a whole number"))
}

/// `64x16`: one to three dimensions; missing ones are 1.
pub(super) fn dims(word: &str) -> Result<[i64; 3], String> {
    let mut dims = [1; 3];
    let parts: Vec<&str> = word.split('x').collect();
    if parts.len() > 3 {
        return Err(format!("`{word}` has more than three dimensions"));
    }
    for (dim, part) in dims.iter_mut().zip(parts) {
        *dim = int(part).map_err(|_| format!("`{word}` is not a size such as 64x16"))?;
    }
    Ok(dims)
}

/// `KEY=VALUE` with a known key.
pub(super) fn option<'a>(word: &'a str, known: &[&str]) -> Result<(&'a str, &'a str), String> {
    match word.split_once('=') {
        Some((key, value)) if known.contains(&key) => Ok((key, value)),
        _ => Err(format!(
            "`{word}`: expected one of {}, each with =VALUE",
            known.join(", ")
        )),
    }
}

/// An argument in the format of PyProf's nvmarker: a Python dictionary.
pub(super) fn argument(word: &str) -> Result<String, String> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) if name.chars().all(|c| c.is_alphanumeric() || c == '_') => {
            (name, value)
        }
        _ => ("", word),
    };
    let rest = if let Some((dtype, shape)) = value.strip_suffix(']').and_then(|v| v.split_once('['))
    {
        format!(
            "'type': 'tensor', 'shape': {}, 'dtype': '{}'",
            tuple(shape),
            dtype_name(dtype)
                .ok_or_else(|| format!("`{dtype}` is no dtype; write f16, f32, i64, ..."))?
        )
    } else if let Some(items) = value.strip_prefix('(').and_then(|v| v.strip_suffix(')')) {
        format!("'type': 'tuple', 'value': {}", tuple(items))
    } else {
        let kind = if value == "None" {
            "NoneType"
        } else if matches!(value, "True" | "False") {
            "bool"
        } else if value.starts_with('\'') && value.ends_with('\'') {
            "str"
        } else if value.parse::<i64>().is_ok() {
            "int"
        } else if value.parse::<f64>().is_ok() {
            "float"
        } else {
            return Err(format!(
                "`{word}` is no argument; write f16[8,4], 3, 0.1, True, None, 'sum' or (1,1)"
            ));
        };
        format!("'type': '{kind}', 'value': {value}")
    };
    Ok(format!("{{'name': '{name}', {rest}}}"))
}

/// `8,4` as a tuple in Python's notation.
fn tuple(items: &str) -> String {
    let items: Vec<&str> = items.split(',').filter(|i| !i.is_empty()).collect();
    match items.as_slice() {
        [only] => format!("({only},)"),
        _ => format!("({})", items.join(", ")),
    }
}

fn dtype_name(short: &str) -> Option<&'static str> {
    const NAMES: [(&str, &str); 9] = [
        ("f16", "float16"),
        ("bf16", "bfloat16"),
        ("f32", "float32"),
        ("f64", "float64"),
        ("i64", "int64"),
        ("i32", "int32"),
        ("i8", "int8"),
        ("u8", "uint8"),
        ("bool", "bool"),
    ];
    NAMES
        .iter()
        .find(|(s, _)| *s == short)
        .map(|(_, name)| *name)
}
