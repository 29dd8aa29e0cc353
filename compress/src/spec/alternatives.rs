//! The codecs between which an encoder chooses (`or`), and between which it cannot.

use crate::error::Error;
use crate::quantize::QuantizeSpec;
use crate::spec::Spec;
use crate::spec::method::Method;

impl Method {
    /// The codec itself, and those after `or`.
    pub fn each(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |codec| codec.or.as_deref())
    }

    /// Whether a rule chooses a number of the codec by earlier frames.
    fn remembers(&self) -> bool {
        let has_rule =
            |quantize: &QuantizeSpec| matches!(quantize, QuantizeSpec::Uniform(uniform) if uniform.rule().is_some());
        self.reduce.method().remembers() || has_rule(&self.quantize)
    }
}

impl Spec {
    /// Succeeds if every choice between codecs can be made.
    ///
    /// # Errors
    /// `Usage` if one is made under a budget, or between codecs with rules that remember earlier frames.
    pub(crate) fn check_choices(&self) -> Result<(), Error> {
        let mut choices = self.tops().filter(|method| method.or.is_some()).peekable();
        if choices.peek().is_some() && self.budget.is_some() {
            return Err(Error::Usage(
                "`or` chooses between codecs at their own steps and densities, which a `budget` would replace; remove one of both"
                    .to_owned(),
            ));
        }
        let remembering = choices.find_map(|method| method.each().find(|codec| codec.remembers()));
        remembering.map_or(Ok(()), |codec| {
            Err(Error::Usage(format!(
                "`or` cannot choose between codecs with a rule that remembers earlier frames, which are not all its own; give {} and {} \
                 a number or a schedule",
                codec.reduce.name(),
                codec.quantize.name()
            )))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Spec, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn choices_of_several_codecs_round_trip() {
        for text in [
            "default = { quantize = { uniform = 2 }, or = { reduce = { top_k = 0.05 }, quantize = { uniform = 8 } } }",
            "default = { or = { quantize = 'sign', or = { reduce = { adacomp = 500 }, quantize = 'sign' } } }",
            "rules = [{ when = { name = '*.weight' }, use = { reduce = { low_rank = 2 }, or = { quantize = 'half' } } }]",
        ] {
            let spec = parse(text).unwrap();
            assert_eq!(parse(&toml::to_string(&spec).unwrap()), Ok(spec.clone()), "{text}");
            assert_eq!(spec.budget, None, "{text}");
        }
        let three = parse("default = { or = { quantize = 'sign', or = { quantize = 'half' } } }").unwrap();
        let names: Vec<&str> = three.default.each().map(|codec| codec.quantize.name()).collect();
        assert_eq!(names, ["exact", "sign", "half"]);
        assert_eq!(three.methods().count(), 3);
    }

    #[test]
    fn refusals_name_the_key() {
        let top_k = "reduce = { top_k = { density = { by = 'entropy' } } }";
        for (text, expected) in [
            (
                "budget = '1 bits'\ndefault = { or = {} }".to_owned(),
                "which a `budget` would replace",
            ),
            (
                format!("default = {{ or = {{ {top_k} }} }}"),
                "give top_k and exact a number",
            ),
            (
                format!("default = {{ {top_k}, or = {{}} }}"),
                "`or` cannot choose between codecs with a rule",
            ),
            (
                "default = { or = { quantize = { uniform = { bits = { by = 'bandit' } } } } }".to_owned(),
                "give keep and uniform a number",
            ),
            (
                "default = { or = { reduce = { low_rank = { rank = { by = 'entropy' } } } } }".to_owned(),
                "give low_rank and exact a number",
            ),
            (
                "default = { or = 'half' }".to_owned(),
                "expected a table of reduce, quantize and code",
            ),
            (
                "default = { or = { or = 3 } }".to_owned(),
                "expected a table of reduce, quantize and code",
            ),
            ("default = { or = { encode = 3 } }".to_owned(), "unknown field `encode`"),
            (
                "default = { or = [] }".to_owned(),
                "sequence, expected a table of reduce, quantize and code",
            ),
            (
                "default = []".to_owned(),
                "sequence, expected a table of reduce, quantize and code",
            ),
            (
                "default = { reduce = { tensor_train = { ranks = [1, 2, 3, 4] } } }".to_owned(),
                "`ranks` of tensor_train are three, each between two of the four cores, such as [4, 8, 4]; [1, 2, 3, 4] has 4",
            ),
            (
                "default = { reduce = { tensor_train = { ranks = [1, 2] } } }".to_owned(),
                "[1, 2] has 2",
            ),
            (
                "default = { reduce = { top_k = { density = { by = 'schedule', points = [[0, 0.1, 5]] } } } }"
                    .to_owned(),
                "`points` are pairs [[round, value], ..]",
            ),
        ] {
            let refusal = parse(&text).unwrap_err();
            assert!(refusal.contains(expected), "{text}\n{refusal}");
        }
    }
}
