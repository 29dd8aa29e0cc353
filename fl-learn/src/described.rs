//! What `check` shows of a learner's examples.

use crate::data::{ClientData, Target};
use crate::learners::LearnerChoice;

const LISTED: usize = 32;

/// Shape of an example, the command that makes first weights for it, and how many examples of each class there are. `task`: the
/// options that name the task.
pub(crate) fn details(learner: &LearnerChoice, data: &ClientData, task: &str) -> Vec<String> {
    let input = data.train.input();
    let [channels, height, width] = input.shape;
    let shape = format!("{channels}x{height}x{width} (channels, height, width)");
    let mut lines = vec![match input.target {
        Target::NextToken => format!(
            "texts of {width} tokens, a vocabulary of {}{}",
            input.classes,
            digest(data)
        ),
        Target::Class => format!(
            "examples of {shape}, {}{}",
            counted(input.classes, "class", "classes"),
            digest(data)
        ),
        Target::Numbers => format!(
            "examples of {shape}, {} to predict",
            counted(input.classes, "number", "numbers")
        ),
    }];
    if !learner.settings().is_empty() {
        lines.push(format!("first weights: fl-client init {task} -o init.safetensors"));
    } else if learner.info().input != Some(input) {
        let outputs = if input.target == Target::Numbers {
            "numbers"
        } else {
            "classes"
        };
        lines.push(format!(
            "first weights: fl-client init --learner {learner} --input {channels}x{height}x{width} --{outputs} {} \
             -o init.safetensors",
            input.classes
        ));
    }
    match input.target {
        Target::NextToken => {
            let train = data.train.targets();
            let test = data.test.targets();
            lines.push(format!("{train} tokens to predict in training, {test} held out"));
        }
        Target::Class => lines.extend(classes(data)),
        Target::Numbers => {}
    }
    lines.extend_from_slice(data.train.notes());
    // A share that is held out has the notes of its training file.
    if data.test.notes() != data.train.notes() {
        lines.extend_from_slice(data.test.notes());
    }
    lines
}

/// The digest of the vocabulary or of the names of the classes, which is the same on every client of a run; nothing if they have no
/// names.
fn digest(data: &ClientData) -> String {
    match data.train.named_classes() {
        Some(names) if !data.train.class_names().is_empty() => format!(" (digest {:016x})", names.digest),
        _ => String::new(),
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn classes(data: &ClientData) -> Vec<String> {
    let train = data.train.class_counts();
    let test = data.test.class_counts();
    let names = data.train.class_names();
    if train.len() > LISTED {
        let [in_training, held_out] = [&train, &test].map(|counts| {
            let least = counts.iter().min().unwrap_or(&0);
            let most = counts.iter().max().unwrap_or(&0);
            format!("{least} to {most}")
        });
        let without = train.iter().filter(|&&count| count == 0).count();
        return vec![format!(
            "per class {in_training} to train on ({without} classes have none), {held_out} held out"
        )];
    }
    let labels: Vec<String> = (0..train.len())
        .map(|class| names.get(class).cloned().unwrap_or_else(|| class.to_string()))
        .collect();
    let wide = labels
        .iter()
        .map(|label| label.chars().count())
        .max()
        .unwrap_or(0)
        .clamp(5, 40);
    let mut lines = vec![format!("{:wide$}  train  held out", "class")];
    for ((label, train), test) in labels.iter().zip(train).zip(test) {
        lines.push(format!("{label:wide$}  {train:5}  {test:8}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fl_compress::Digest;

    use super::*;
    use crate::data::{Dataset, Examples, Features, Input, Tokens};

    fn data(classes: usize) -> ClientData {
        let input = Input::of_classes([1, 1, 2], classes);
        let set = Dataset::new(Features::Floats(vec![0.0; 8]), vec![0, 0, 0, 1], input).unwrap();
        let names = (0..classes).map(|class| format!("species {class}")).collect();
        let set = Arc::new(set.with_class_names(names).unwrap());
        ClientData {
            train: Examples::new(set.clone(), vec![0, 1, 3]).unwrap(),
            test: Examples::new(set, vec![2]).unwrap(),
        }
    }

    #[test]
    fn classes_are_listed_with_their_names_and_counts() {
        let digest = Digest::of(b"species 0\nspecies 1").short();
        assert_eq!(
            details(&"mlp".parse().unwrap(), &data(2), ""),
            [
                &format!("examples of 1x1x2 (channels, height, width), 2 classes (digest {digest:016x})"),
                "first weights: fl-client init --learner mlp --input 1x1x2 --classes 2 -o init.safetensors",
                "class      train  held out",
                "species 0      2         1",
                "species 1      1         0",
            ]
        );
    }

    #[test]
    fn texts_and_numbers_have_no_classes() {
        let mut tokens = Tokens::new(300);
        (0..20).for_each(|token| tokens.push(token).unwrap());
        let pieces = vec![1..9, 9..17, 17..20];
        let set = Arc::new(Dataset::of_text(Features::Text { tokens, pieces }, 8).unwrap());
        let data = ClientData {
            train: Examples::new(set.clone(), vec![0, 1]).unwrap(),
            test: Examples::new(set, vec![2]).unwrap(),
        };
        assert_eq!(
            details(&"lstm".parse().unwrap(), &data, ""),
            [
                "texts of 8 tokens, a vocabulary of 300",
                "first weights: fl-client init --learner lstm --input 1x1x8 --classes 300 -o init.safetensors",
                "16 tokens to predict in training, 3 held out",
            ]
        );
        let mut tokens = Tokens::new(2);
        (0..3).for_each(|token| tokens.push(token % 2).unwrap());
        let pieces = std::iter::once(1..3).collect();
        let named = Dataset::of_text(Features::Text { tokens, pieces }, 2).unwrap();
        let named = Arc::new(named.with_class_names(vec!["a".to_owned(), "b".to_owned()]).unwrap());
        let data = ClientData {
            train: Examples::all(named.clone()),
            test: Examples::all(named),
        };
        let digest = format!("{:016x}", Digest::of(b"a\nb").short());
        let lines = details(&"lstm".parse().unwrap(), &data, "");
        assert!(
            lines[0].ends_with(&format!("a vocabulary of 2 (digest {digest})")),
            "{lines:?}"
        );
        let input = Input::of_numbers([1, 1, 2], 1);
        let mut set = Dataset::of_numbers(Features::Floats(vec![0.0; 8]), vec![0.0; 4], input).unwrap();
        set.notes = vec!["a.csv: 4 rows".to_owned()].into();
        let set = Arc::new(set);
        let data = ClientData {
            train: Examples::all(set.clone()),
            test: Examples::all(set),
        };
        assert_eq!(
            details(&"mlp".parse().unwrap(), &data, ""),
            [
                "examples of 1x1x2 (channels, height, width), 1 number to predict",
                "first weights: fl-client init --learner mlp --input 1x1x2 --numbers 1 -o init.safetensors",
                "a.csv: 4 rows",
            ]
        );
    }

    #[test]
    fn many_classes_are_summed_up() {
        let text = details(&"mlp".parse().unwrap(), &data(100), "").join("\n");
        assert!(
            details(
                &"{ name = 'mlp', hidden = [3] }".parse().unwrap(),
                &data(2),
                "--config c.toml --task t"
            )[1]
            .contains("init --config c.toml --task t -o")
        );
        assert!(
            text.contains("per class 0 to 2 to train on (98 classes have none), 0 to 1 held out"),
            "{text}"
        );
    }
}
