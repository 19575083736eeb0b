//! Names of modules against the patterns of quantization lists: plain names,
//! shell globs (`model.layers.*.self_attn*`) and regular expressions (`re:…`).
//!
//! See [`super::expression`] for the subset that is understood.

use super::expression::LONGEST;
use super::expression::Program;

/// One entry of an `ignore`, `exclude_modules` or `modules_to_not_convert` list.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// A name or a glob; matches a module or anything inside it.
    Glob {
        /// What stands before the first wildcard; most names differ in it.
        literal: String,
        /// The whole pattern.
        letters: Vec<char>,
    },
    /// A regular expression, anchored at the start as Python's `re.match` is.
    Expression {
        /// Some text that every match contains; most names lack it.
        literal: String,
        /// The expression.
        program: Program,
    },
    /// Not understood; matches nothing.
    Unknown,
}

impl Pattern {
    /// Reads one entry.
    pub fn new(text: &str) -> Pattern {
        if text.len() > LONGEST {
            return Pattern::Unknown;
        }
        match text.strip_prefix("re:") {
            Some(expression) => match Program::new(expression) {
                Some(program) => Pattern::Expression { literal: required(expression), program },
                None => Pattern::Unknown,
            },
            None => {
                let literal = text.split(['*', '?']).next().unwrap_or("").to_owned();
                Pattern::Glob { literal, letters: text.chars().collect() }
            }
        }
    }

    /// Whether the module `name` (components joined by dots) is meant.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Pattern::Glob { literal, letters: pattern } => {
                if !name.starts_with(literal.as_str()) {
                    return false;
                }
                let letters: Vec<char> = name.chars().collect();
                let ends = letters.iter().enumerate().filter(|(_, c)| **c == '.').map(|(i, _)| i);
                ends.chain([letters.len()]).any(|end| glob(pattern, &letters[..end]))
            }
            Pattern::Expression { literal, program } => name.contains(literal.as_str()) && program.matches(name),
            Pattern::Unknown => false,
        }
    }

    /// Whether the answer may hang on the number in `…layers.N.…`. It cannot
    /// where nothing but runs of any letters takes digits: such a run takes the
    /// digits of every number.
    pub fn tells_numbers(&self) -> bool {
        match self {
            Pattern::Glob { letters, .. } => letters.iter().any(|c| *c == '?' || c.is_ascii_digit()),
            Pattern::Expression { program, .. } => program.tells_numbers(),
            Pattern::Unknown => false,
        }
    }
}

/// The longest run of letters that every match of the expression contains;
/// empty when it is not easily told.
fn required(expression: &str) -> String {
    let (mut longest, mut run) = (String::new(), String::new());
    let mut depth = 0_u32;
    let mut letters = expression.chars().chain(['$']);
    while let Some(c) = letters.next() {
        if depth == 0 && (c.is_ascii_alphanumeric() || c == '_') {
            run.push(c);
            continue;
        }
        if depth == 0 && c == '\\' && letters.clone().next() == Some('.') {
            letters.next();
            run.push('.');
            continue;
        }
        if matches!(c, '*' | '?' | '{') {
            run.pop();
        }
        // The first of equal length; one with a dot tells more names apart.
        if (run.contains('.'), run.len()) > (longest.contains('.'), longest.len()) {
            longest.clone_from(&run);
        }
        run.clear();
        match c {
            '|' if depth == 0 => return String::new(),
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '\\' => {
                letters.next();
            }
            _ => {}
        }
    }
    longest
}

/// `*` any run, `?` any one; the classical two-pointer walk.
fn glob(pattern: &[char], name: &[char]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == '*' {
            back = Some((p, n));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((star, at)) = back {
            p = star + 1;
            n = at + 1;
            back = Some((star, n));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_a_module_and_what_is_inside() {
        let glob = |p: &str, n: &str| Pattern::new(p).matches(n);
        assert!(glob("model.layers.*.self_attn", "model.layers.7.self_attn.q_proj"));
        assert!(glob("model.layers.1.self_attn*", "model.layers.1.self_attn.o_proj"));
        assert!(!glob("model.layers.1.self_attn*", "model.layers.11.self_attn.o_proj"));
        assert!(!glob("model.layers.0.mlp.gate", "model.layers.0.mlp.gate_proj"));
        assert!(glob("*.mlp.shared_expert.*", "model.layers.3.mlp.shared_expert.up_proj"));
        assert!(glob("lm_head", "lm_head"));
    }

    #[test]
    fn what_a_match_must_contain() {
        assert_eq!(required(r".*mlp\.(gate|up)_proj.*"), "mlp.");
        assert_eq!(required("self_attn.*"), "self_attn");
        assert_eq!(required("abc*"), "ab");
        assert_eq!(required("abc|d"), "");
        assert_eq!(required(r"x\d+[abc]"), "x");
    }

    #[test]
    fn which_patterns_tell_numbers_apart() {
        for blind in ["lm_head", "model.layers.*.self_attn", "re:.*self_attn.*", r"re:.*mlp\.(gate|up)_proj.*?", "re:(.*a)+"] {
            assert!(!Pattern::new(blind).tells_numbers(), "{blind}");
        }
        for telling in ["model.layers.1.*", "a.?.b", r"re:.*layers\.\d\.", "re:.*.mlp", "re:.+mlp", "re:.*[^5]x", "re:(.a)*"] {
            assert!(Pattern::new(telling).tells_numbers(), "{telling}");
        }
    }

    #[test]
    fn expressions_match_as_python_does() {
        let re = |p: &str, n: &str| Pattern::new(p).matches(n);
        let dense = r"re:.*mlp\.(gate|up|gate_up|down)_proj.*";
        assert!(re(dense, "model.layers.0.mlp.gate_proj"));
        assert!(!re(dense, "model.layers.1.mlp.experts.3.gate_proj"));
        assert!(re(r"re:.*self_attn.*", "model.layers.1.self_attn.q_a_proj"));
        assert!(re(r"re:model\.layers\.(0|1|[5-9])\.", "model.layers.7.mlp"));
        assert!(!re(r"re:model\.layers\.(0|1|[5-9])\.", "model.layers.4.mlp"));
        assert!(re(r"re:^model\.layers\.\d+\.mlp$", "model.layers.40.mlp"));
        assert!(!re(r"re:^model\.layers\.\d+\.mlp$", "model.layers.40.mlp.gate"));
        assert!(re("re:(a|b)*?c?", "abbac"));
        assert!(!re("re:(?!x)y", "y"), "look-ahead is not understood and matches nothing");
    }
}
