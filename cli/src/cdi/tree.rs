//! Text as a tree, for a person to read.

#[derive(Debug)]
pub(super) struct Tree {
    title: String,
    branches: Vec<(&'static str, Vec<String>)>,
}

impl Tree {
    pub(super) fn new(title: &str) -> Self {
        Self { title: title.to_owned(), branches: Vec::new() }
    }

    /// Adds a branch, unless it has no leaves.
    pub(super) fn branch(&mut self, name: &'static str, leaves: impl Iterator<Item = String>) {
        let leaves: Vec<String> = leaves.collect();
        if !leaves.is_empty() {
            self.branches.push((name, leaves));
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n", visible(&self.title));
        for (at, (name, leaves)) in self.branches.iter().enumerate() {
            let last = at + 1 == self.branches.len();
            let (knot, trunk) =
                if last { ("└── ", "    ") } else { ("├── ", "│   ") };
            text.push_str(&format!("{knot}{name}\n"));
            for (at, leaf) in leaves.iter().enumerate() {
                let knot = if at + 1 == leaves.len() { "└── " } else { "├── " };
                text.push_str(&format!("{trunk}{knot}{}\n", visible(leaf)));
            }
        }
        text
    }
}

/// What others wrote must not move the cursor of whoever reads it.
fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_hang_on_a_trunk() {
        let mut tree = Tree::new("x\n");
        tree.branch("a", ["1", "2"].map(str::to_owned).into_iter());
        tree.branch("none", std::iter::empty());
        tree.branch("b", std::iter::once("3".to_owned()));
        let text = "x \n├── a\n│   ├── 1\n│   └── 2\n└── b\n    └── 3\n";
        assert_eq!(tree.text(), text);
    }
}
