//! The regular expressions of quantization lists: the subset that checkpoints
//! use: literals, `.`, classes, `\d \w \s`, groups, `|`, `* + ?` (lazy forms
//! too), anchors. They run as a set of states, so no pattern takes more than
//! pattern × name steps.

/// Longest pattern that is tried; checkpoints use some 60 characters.
pub(super) const LONGEST: usize = 1000;

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

    fn is_any(&self) -> bool {
        self.negated && self.ranges.is_empty()
    }
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Program {
    steps: Vec<Step>,
}

impl Program {
    /// Compiles; None for what is not understood.
    pub(super) fn new(text: &str) -> Option<Program> {
        let letters: Vec<char> = text.chars().collect();
        let mut parser = Parser { letters: &letters, at: 0, depth: 0 };
        let mut steps = parser.alternatives()?;
        if parser.at != letters.len() {
            return None;
        }
        steps.push(Step::Match);
        Some(Program { steps })
    }

    /// Whether a position outside a loop of any letters (`Split, One, Jump`) takes a digit.
    pub(super) fn tells_numbers(&self) -> bool {
        let loops = |at: usize| {
            let back = self.steps.get(at + 1);
            at > 0 && matches!(self.steps[at - 1], Step::Split(a, _) if a == at) && matches!(back, Some(Step::Jump(to)) if *to == at - 1)
        };
        (self.steps.iter().enumerate())
            .any(|(at, step)| matches!(step, Step::One(set) if ('0'..='9').any(|c| set.has(c)) && !(set.is_any() && loops(at))))
    }

    /// Whether the expression matches at the start of `name`.
    pub(super) fn matches(&self, name: &str) -> bool {
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
