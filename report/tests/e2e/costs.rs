//! Cost files: valid and refused content.

use fl_report::CostsPlan;

#[test]
fn the_file_in_configs_is_the_default_whether_its_keys_are_commented_out_or_not() {
    let text = include_str!("../../../configs/costs.toml");
    let plain = CostsPlan::from_toml(text).unwrap();
    assert_eq!(plain, CostsPlan::from_toml("").unwrap());
    let (keys, _) = text.split_once("#[[links]]").unwrap();
    let bare = |text: &str| -> String {
        let line = |line: &str| {
            line.strip_prefix('#')
                .filter(|line| !line.starts_with(' '))
                .unwrap_or(line)
                .to_owned()
                + "\n"
        };
        text.lines().map(line).collect()
    };
    assert_eq!(CostsPlan::from_toml(&bare(keys)).unwrap(), plain);
    let example = CostsPlan::from_toml(&bare(text)).unwrap();
    assert_ne!(example.link("camera-7"), &plain.default);
    assert_eq!(example.link("desk"), &plain.default);
}

#[test]
fn the_first_link_that_names_a_client_counts_and_leaves_what_it_does_not_say() {
    let plan = CostsPlan::from_toml(
        "[link]\nprice_per_gb_up = 1\nkwh_per_gb = 0.5\n\
         [[links]]\nclients = ['camera-7']\nprice_per_gb_up = 9\n\
         [[links]]\nclients = ['camera-*', 'x']\nprice_per_gb_down = 3.0",
    )
    .unwrap();
    let of = |client| {
        let link = plan.link(client);
        (link.price_per_gb_up, link.price_per_gb_down, link.kwh_per_gb)
    };
    assert_eq!(of("camera-7"), (9.0, 0.0, 0.5));
    assert_eq!(of("camera-70"), (1.0, 3.0, 0.5));
    assert_eq!(of("camera"), (1.0, 0.0, 0.5));
    assert_eq!(of("x"), (1.0, 3.0, 0.5));
}

#[test]
fn what_is_not_a_price_is_refused_by_its_key() {
    for (text, said) in [
        ("[link]\nprice_per_gb_up = -1.0", "`link.price_per_gb_up` is -1, but"),
        ("[link]\nkwh_per_gb = nan", "`link.kwh_per_gb` is NaN"),
        ("[link]\nkwh_per_gb = inf", "`link.kwh_per_gb` is inf"),
        ("carbon_g_per_kwh = -inf", "`carbon_g_per_kwh` is -inf"),
        ("currency = ''", "`currency` is \"\""),
        ("currency = \"E\\u001b\"", "`currency`"),
        ("price = 1", "unknown field `price`"),
        ("[link]\nprice = 1", "unknown field `price`"),
        ("[[links]]\nprice_per_gb_up = 1", "missing field `clients`"),
        ("[[links]]\nclients = []", "`links[0].clients` is []"),
        ("[[links]]\nclients = ['a*b']", "`links[0].clients` is \"a*b\""),
        ("[[links]]\nclients = ['']", "`links[0].clients` is \"\""),
        ("[link]\nprice_per_gb_up = 'much'", "invalid type"),
        ("[link", "TOML parse error"),
    ] {
        let error = CostsPlan::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}
