//! `fl-client check`: everything that can be found out without the server.

use std::path::{Path, PathBuf};

use fl_cli::out;
use fl_compress::Digest;

use super::dry_run::dry_run;
use crate::client_file::{ClientFile, LearnerEntry, TaskEntry, TrainerEntry};
use crate::data::{ClientData, Target};
use crate::error::Error;
use crate::learners::LearnerChoice;

/// Check a configuration: keys, certificates, learners, data.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The client's configuration.
    #[arg(default_value = "client.toml")]
    config: PathBuf,
    /// Start each trainer, train so many steps from its own first weights, and print speed, memory and the tensors.
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    dry_run: Option<u32>,
}

impl Args {
    /// Whether what trainers print is shown.
    pub(super) fn prints_output(&self) -> bool {
        self.dry_run.is_some()
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let file = ClientFile::read(&args.config)?;
    out::line(format_args!(
        "{}: every key is known and in range",
        args.config.display()
    ))?;
    let mut wrong = Vec::new();
    let fault = |config: &crate::ClientConfig| {
        config.own_fault().or_else(|| {
            let usable = fl_proto::client_tls(&config.authority, &config.own).err();
            usable.map(|error| format!("`certificate` and `key`: {error}"))
        })
    };
    match crate::check_certificates(&file.config).map(|ends| (ends, fault(&file.config))) {
        Ok((_, Some(fault))) => wrong.push(fault),
        Ok((ends, None)) => out::line(format_args!("certificate: good until {}", ends.date()))?,
        Err(error) => wrong.push(error.to_string()),
    }
    super::conditions::print(&file.config.when)?;
    if file.tasks.is_empty() {
        wrong.push("no [tasks.NAME]: the client could take part in nothing".to_owned());
    }
    for (name, entry) in &file.tasks {
        let checked = match &entry.learner {
            LearnerEntry::BuiltIn(_) => built_in(&file, &args.config, name, entry),
            LearnerEntry::Trainer(trainer) => self::trainer(&file, name, trainer, args.dry_run),
        };
        if let Err(error) = checked {
            wrong.push(format!("task {name}: {error:#}"));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Error::Config(wrong.join("\n       ")).into())
    }
}

fn built_in(file: &ClientFile, path: &Path, name: &str, entry: &TaskEntry) -> anyhow::Result<()> {
    let Some((learner, data)) = entry.built_in() else {
        return Ok(());
    };
    let data = data.load()?;
    let parameters = learner.build(file.device, data.clone())?.layout().len();
    let (train, test) = (data.train.len(), data.test.len());
    out::line(format_args!(
        "task {name}: {learner}, {parameters} parameters; {train} examples to train on, {test} held out"
    ))?;
    out::text(format_args!(
        "{}",
        super::limits::report(&file.config.limits, parameters as u64)
    ))?;
    let task = format!("--config {} --task {name}", path.display());
    out::text(format_args!("{}", examples(learner, &data, &task)))
}

fn trainer(file: &ClientFile, name: &str, trainer: &TrainerEntry, steps: Option<u32>) -> anyhow::Result<()> {
    match (&trainer.command, steps) {
        (Some(_), Some(steps)) => dry_run(name, file.trainer_aside(name)?, steps),
        (Some(command), None) => out::line(format_args!(
            "task {name}: trainer `{}`; `--dry-run 3` starts it",
            command.join(" ")
        )),
        (None, _) => out::line(format_args!(
            "task {name}: a trainer attaches to {}; a dry run needs `command`",
            file.config
                .state
                .join(trainer.attach.as_deref().unwrap_or(std::path::Path::new("")))
                .display()
        )),
    }
}

/// Most classes that are listed one by one.
const LISTED: usize = 32;

/// Shape of an example, the command that makes first weights for it, and how many examples of each class there are. `task`: the
/// options that name the task.
fn examples(learner: &LearnerChoice, data: &ClientData, task: &str) -> String {
    let input = data.train.input();
    let [channels, height, width] = input.shape;
    let shape = format!("{channels}x{height}x{width} (channels, height, width)");
    let mut text = match input.target {
        Target::NextToken => format!(
            "  texts of {width} tokens, a vocabulary of {}{}\n",
            input.classes,
            vocabulary(data)
        ),
        Target::Class => format!(
            "  examples of {shape}, {}\n",
            counted(input.classes, "class", "classes")
        ),
        Target::Numbers => format!(
            "  examples of {shape}, {} to predict\n",
            counted(input.classes, "number", "numbers")
        ),
    };
    if !learner.settings().is_empty() {
        text.push_str(&format!("  first weights: fl-client init {task} -o init.safetensors\n"));
    } else if learner.info().input != input {
        let outputs = if input.target == Target::Numbers {
            "numbers"
        } else {
            "classes"
        };
        text.push_str(&format!(
            "  first weights: fl-client init --learner {learner} --input {channels}x{height}x{width} --{outputs} {} \
             -o init.safetensors\n",
            input.classes
        ));
    }
    match input.target {
        Target::NextToken => {
            let (train, test) = (data.train.targets(), data.test.targets());
            text.push_str(&format!("  {train} tokens to predict in training, {test} held out\n"));
        }
        Target::Class => text.push_str(&classes(data)),
        Target::Numbers => {}
    }
    text
}

/// The beginning of the digest of the vocabulary, which is the same on every client of a run; nothing if bytes are the tokens.
fn vocabulary(data: &ClientData) -> String {
    let names = data.train.class_names();
    if names.is_empty() {
        return String::new();
    }
    let digest = Digest::of(names.join("\n").as_bytes()).to_string();
    format!(" (digest {})", &digest[..16])
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// How many examples of each class there are.
fn classes(data: &ClientData) -> String {
    let mut text = String::new();
    let (train, test, names) = (
        data.train.class_counts(),
        data.test.class_counts(),
        data.train.class_names(),
    );
    if train.len() > LISTED {
        let range = |counts: &[u64]| {
            let (least, most) = (counts.iter().min().unwrap_or(&0), counts.iter().max().unwrap_or(&0));
            format!("{least} to {most}")
        };
        let without = train.iter().filter(|&&count| count == 0).count();
        text.push_str(&format!(
            "  per class {} to train on ({without} classes have none), {} held out\n",
            range(&train),
            range(&test)
        ));
        return text;
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
    text.push_str(&format!("  {:wide$}  train  held out\n", "class"));
    for ((label, train), test) in labels.iter().zip(train).zip(test) {
        text.push_str(&format!("  {label:wide$}  {train:5}  {test:8}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
        assert_eq!(
            examples(&"mlp".parse().unwrap(), &data(2), ""),
            "  examples of 1x1x2 (channels, height, width), 2 classes\n\
             \x20 first weights: fl-client init --learner mlp --input 1x1x2 --classes 2 -o init.safetensors\n\
             \x20 class      train  held out\n\
             \x20 species 0      2         1\n\
             \x20 species 1      1         0\n"
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
            examples(&"lstm".parse().unwrap(), &data, ""),
            "  texts of 8 tokens, a vocabulary of 300\n\
             \x20 first weights: fl-client init --learner lstm --input 1x1x8 --classes 300 -o init.safetensors\n\
             \x20 16 tokens to predict in training, 3 held out\n"
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
        let digest = &Digest::of(b"a\nb").to_string()[..16];
        let text = examples(&"lstm".parse().unwrap(), &data, "");
        assert!(
            text.contains(&format!("a vocabulary of 2 (digest {digest})\n")),
            "{text}"
        );
        let input = Input::of_numbers([1, 1, 2], 1);
        let set = Arc::new(Dataset::of_numbers(Features::Floats(vec![0.0; 8]), vec![0.0; 4], input).unwrap());
        let data = ClientData {
            train: Examples::all(set.clone()),
            test: Examples::all(set),
        };
        assert_eq!(
            examples(&"mlp".parse().unwrap(), &data, ""),
            "  examples of 1x1x2 (channels, height, width), 1 number to predict\n\
             \x20 first weights: fl-client init --learner mlp --input 1x1x2 --numbers 1 -o init.safetensors\n"
        );
    }

    #[test]
    fn many_classes_are_summed_up() {
        let text = examples(&"mlp".parse().unwrap(), &data(100), "");
        assert!(
            examples(
                &"{ name = 'mlp', hidden = [3] }".parse().unwrap(),
                &data(2),
                "--config c.toml --task t"
            )
            .contains("init --config c.toml --task t -o")
        );
        assert!(
            text.contains("per class 0 to 2 to train on (98 classes have none), 0 to 1 held out"),
            "{text}"
        );
    }
}
