//! Names of modules against the patterns of quantization lists: plain names,
//! shell globs (`model.layers.*.self_attn*`) and regular expressions (`re:…`).
//!
//! The expressions are the subset that checkpoints use: literals, `.`, classes,
//! `\d \w \s`, groups, `|`, `* + ?` (lazy forms too), anchors. They run as a
//! set of states, so no pattern takes more than pattern × name steps.

/// Longest pattern that is tried; checkpoints use some 60 characters.
const LONGEST: usize = 1000;

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

#[derive(Clone, Debug)]
enum Step {
    One(Set),
    Split(usize, usize),
    Jump(usize),
    End,
    Match,
}

/// What one position accepts.
#[derive(Clone, Debug)]
struct Set {
    ranges: Vec<(char, char)>,
    negated: bool,
}

impl Set {
    fn has(&self, c: char) -> bool {
        self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != self.negated
    }
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Program {
    steps: Vec<Step>,
}

impl Program {
    fn new(text: &str) -> Option<Program> {
        let letters: Vec<char> = text.chars().collect();
        let mut parser = Parser { letters: &letters, at: 0, depth: 0 };
        let mut steps = parser.alternatives()?;
        if parser.at != letters.len() {
            return None;
        }
        steps.push(Step::Match);
        Some(Program { steps })
    }

    fn matches(&self, name: &str) -> bool {
        let mut states = vec![false; self.steps.len()];
        let mut next = states.clone();
        let mut open = Vec::with_capacity(8);
        let letters: Vec<char> = name.chars().collect();
        self.enter(0, letters.is_empty(), &mut states, &mut open);
        for (i, c) in letters.iter().enumerate() {
            if self.done(&states) {
                return true;
            }
            next.fill(false);
            for (at, _) in states.iter().enumerate().filter(|(_, on)| **on) {
                if let Step::One(set) = &self.steps[at]
                    && set.has(*c)
                {
                    self.enter(at + 1, i + 1 == letters.len(), &mut next, &mut open);
                }
            }
            std::mem::swap(&mut states, &mut next);
        }
        self.done(&states)
    }

    fn done(&self, states: &[bool]) -> bool {
        // The last step is the only match.
        states.last().copied().unwrap_or(false)
    }

    /// Marks `start` and all that is reached from it without a letter.
    fn enter(&self, start: usize, at_end: bool, states: &mut [bool], open: &mut Vec<usize>) {
        open.push(start);
        while let Some(at) = open.pop() {
            if states[at] {
                continue;
            }
            states[at] = true;
            match self.steps[at] {
                Step::Split(a, b) => open.extend([a, b]),
                Step::Jump(to) => open.push(to),
                Step::End if at_end => open.push(at + 1),
                _ => {}
            }
        }
    }
}

struct Parser<'a> {
    letters: &'a [char],
    at: usize,
    depth: u32,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    fn alternatives(&mut self) -> Option<Vec<Step>> {
        self.depth += 1;
        if self.depth > 32 {
            return None;
        }
        let mut steps = self.run()?;
        while self.peek() == Some('|') {
            self.at += 1;
            let other = self.run()?;
            steps = either(steps, other);
        }
        self.depth -= 1;
        Some(steps)
    }

    fn run(&mut self) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        while let Some(c) = self.peek() {
            if c == '|' || c == ')' {
                break;
            }
            let atom = self.atom()?;
            let atom = self.repeated(atom);
            append(&mut steps, atom);
            if steps.len() > 4 * LONGEST {
                return None;
            }
        }
        Some(steps)
    }

    fn atom(&mut self) -> Option<Vec<Step>> {
        let one = |ranges: Vec<(char, char)>| Some(vec![Step::One(Set { ranges, negated: false })]);
        match self.next()? {
            '^' if self.at == 1 => Some(Vec::new()),
            '^' | '*' | '+' | '?' | '{' => None,
            '$' => Some(vec![Step::End]),
            '.' => Some(vec![Step::One(Set { ranges: Vec::new(), negated: true })]),
            '(' => {
                if self.peek() == Some('?') {
                    self.at += 1;
                    if self.next()? != ':' {
                        return None;
                    }
                }
                let steps = self.alternatives()?;
                (self.next()? == ')').then_some(steps)
            }
            '[' => self.class(),
            '\\' => one(escape(self.next()?)?),
            c => one(vec![(c, c)]),
        }
    }

    fn class(&mut self) -> Option<Vec<Step>> {
        let negated = self.peek() == Some('^');
        if negated {
            self.at += 1;
        }
        let mut ranges = Vec::new();
        loop {
            match self.next()? {
                ']' if !ranges.is_empty() => break,
                '\\' => ranges.extend(escape(self.next()?)?),
                low => {
                    let dash = self.peek() == Some('-') && self.letters.get(self.at + 1).is_some_and(|c| *c != ']');
                    if dash {
                        self.at += 1;
                    }
                    ranges.push((low, if dash { self.next()? } else { low }));
                }
            }
        }
        Some(vec![Step::One(Set { ranges, negated })])
    }

    fn repeated(&mut self, mut atom: Vec<Step>) -> Vec<Step> {
        let Some(sign @ ('*' | '+' | '?')) = self.peek() else { return atom };
        self.at += 1;
        if self.peek() == Some('?') {
            self.at += 1;
        }
        let length = atom.len();
        if sign == '+' {
            atom.push(Step::Split(0, length + 1));
            return atom;
        }
        let mut steps = vec![Step::Split(1, length + if sign == '*' { 2 } else { 1 })];
        append(&mut steps, atom);
        if sign == '*' {
            steps.push(Step::Jump(0));
        }
        steps
    }
}

fn escape(c: char) -> Option<Vec<(char, char)>> {
    match c {
        'd' => Some(vec![('0', '9')]),
        'w' => Some(vec![('0', '9'), ('a', 'z'), ('A', 'Z'), ('_', '_')]),
        's' => Some(vec![(' ', ' '), ('\t', '\r')]),
        c if c.is_ascii_alphanumeric() => None,
        c => Some(vec![(c, c)]),
    }
}

/// Adds `more` behind `steps`, moving its targets.
fn append(steps: &mut Vec<Step>, more: Vec<Step>) {
    let base = steps.len();
    steps.extend(more.into_iter().map(|step| match step {
        Step::Split(a, b) => Step::Split(a + base, b + base),
        Step::Jump(to) => Step::Jump(to + base),
        other => other,
    }));
}

fn either(first: Vec<Step>, second: Vec<Step>) -> Vec<Step> {
    let (a, b) = (first.len(), second.len());
    let mut steps = vec![Step::Split(1, a + 2)];
    append(&mut steps, first);
    steps.push(Step::Jump(a + 2 + b));
    append(&mut steps, second);
    steps
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
