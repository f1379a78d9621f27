//! Requirements held against drivers and GPUs.

use proptest::prelude::*;

use super::*;

fn facts(driver: &str, gpus: &[(&str, u16)]) -> Facts {
    let gpus = gpus.iter().map(|(model, id)| GpuFacts {
        name: (*model).to_owned(),
        arch: tables::compute_capability(*id),
        brands: tables::brands(model),
    });
    Facts { driver: driver.to_owned(), cuda: tables::cuda(driver), gpus: gpus.collect() }
}

const L4: (&str, u16) = ("NVIDIA L4", 0x27b8);
const RTX: (&str, u16) = ("NVIDIA GeForce RTX 4090", 0x2684);
const NEW: (&str, u16) = ("Something", 0xffff);

fn asked(variable: &str, expression: &str) -> Vec<Requirement> {
    vec![Requirement { variable: variable.to_owned(), expression: expression.to_owned() }]
}

fn held(expression: &str, facts: &Facts) -> Result<Findings> {
    check(&asked("NVIDIA_REQUIRE_CUDA", expression), Requirements::Enforce, || facts.clone())
}

/// `met`, `warned` or `refused`.
fn word(expression: &str, facts: &Facts) -> &'static str {
    match held(expression, facts) {
        Ok(findings) if findings.warnings.is_empty() => "met",
        Ok(_) => "warned",
        Err(_) => "refused",
    }
}

#[test]
fn driver_and_cuda_are_enforced_arch_and_brand_are_not() {
    let node = facts("550.163.01", &[L4]);
    for (expression, expected) in [
        ("", "met"),
        ("cuda>=12.4", "met"),
        ("cuda<13", "met"),
        ("cuda=12.4", "met"),
        ("cuda!=12.4", "refused"),
        ("cuda>=12.5", "refused"),
        ("cuda>=12.4,driver>=560", "refused"),
        ("cuda>=12.5 driver>=550", "met"),
        ("driver>=550.163.01,driver<551", "met"),
        ("driver>550.163.01", "refused"),
        ("arch>=8.9", "met"),
        ("arch>=9.0", "warned"),
        ("brand=tesla", "met"),
        ("brand=NVIDIA", "met"),
        ("brand=geforce", "warned"),
        ("brand!=geforce", "met"),
        ("brand!=tesla", "warned"),
        ("os=linux", "warned"),
        ("arch>=9.0,cuda>=99", "refused"),
        ("cuda>=99 arch>=9.0", "warned"),
        ("cuda>=99 arch>=9.0 arch>=8", "met"),
    ] {
        assert_eq!(word(expression, &node), expected, "{expression}");
    }
}

#[test]
fn each_gpu_must_do() {
    assert_eq!(word("brand=tesla", &facts("550.1", &[L4, RTX])), "warned");
    assert_eq!(word("brand=tesla", &facts("550.1", &[])), "met");
    assert_eq!(word("arch>=8", &facts("550.1", &[NEW])), "warned");
    let warned = held("brand=tesla", &facts("550.1", &[L4, RTX])).unwrap().warnings;
    assert_eq!(
        warned,
        ["NVIDIA_REQUIRE_CUDA asks for brand=tesla, and NVIDIA GeForce RTX 4090 has brand \
          geforcertx or geforce; not enforced"]
    );
}

#[test]
fn what_is_newer_than_the_tables_passes() {
    let node = facts("700.1", &[]);
    assert_eq!(word("cuda>=13.0", &node), "met");
    assert_eq!(word("cuda>=14", &node), "warned");
    assert_eq!(word("cuda<14", &node), "warned");
    assert_eq!(word("cuda>=1", &facts("300.1", &[])), "warned");
}

/// As it stands in NVIDIA's image of CUDA 12.4, shortened.
#[test]
fn an_image_of_nvidias() {
    let image = "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=470,driver<471 \
                 brand=geforce,driver>=470,driver<471 brand=tesla,driver>=535,driver<536 \
                 brand=geforcertx,driver>=535,driver<536";
    assert_eq!(word(image, &facts("550.163.01", &[L4])), "met");
    assert_eq!(word(image, &facts("535.261.03", &[L4])), "met");
    assert_eq!(word(image, &facts("535.261.03", &[RTX])), "met");
    let error = held(image, &facts("525.1", &[L4])).unwrap_err();
    assert_eq!(error.code(), Code::RequirementUnmet);
    assert_eq!(
        error.to_string(),
        "NVS-107: NVIDIA_REQUIRE_CUDA asks for cuda>=12.4, and cuda here is 12.0 with driver 525.1 \
         (nor is any of 5 alternatives met); install a newer driver or use an older image; \
         NVIDIA_DISABLE_REQUIRE=true starts it as it is"
    );
}

#[test]
fn what_is_no_requirement_is_refused_unless_it_is_the_version_of_an_image() {
    let node = facts("550.1", &[]);
    let error = held("cuda>>", &node).unwrap_err();
    assert_eq!(error.code(), Code::RequirementInvalid);
    assert!(error.to_string().contains("NVIDIA_REQUIRE_CUDA has \"cuda>>\""), "{error}");
    let legacy = asked("CUDA_VERSION", "cuda>=abc");
    assert_eq!(check(&legacy, Requirements::Enforce, || node.clone()).unwrap().warnings.len(), 1);
    let legacy = asked("CUDA_VERSION", "cuda>=99.0");
    check(&legacy, Requirements::Enforce, || node.clone()).unwrap_err();
}

#[test]
fn nothing_is_refused_where_it_is_only_warned_of() {
    let node = facts("550.1", &[]);
    for expression in ["cuda>=99", "cuda>>"] {
        let asked = asked("NVIDIA_REQUIRE_CUDA", expression);
        let findings = check(&asked, Requirements::Warn, || node.clone()).unwrap();
        assert!(findings.warnings[0].contains(expression), "{findings:?}");
        assert_eq!(check(&asked, Requirements::Off, || node.clone()).unwrap(), Findings::default());
    }
}

#[test]
fn a_requirement_longer_than_any_is_refused() {
    let node = facts("550.1", &[L4]);
    let long = |bytes: usize| "cuda>=1 ".repeat(bytes / 8);
    held(&long(LONGEST), &node).unwrap();
    let error = held(&long(LONGEST + 8), &node).unwrap_err();
    assert_eq!(error.code(), Code::RequirementInvalid);
    assert!(error.to_string().contains("65544 bytes long"), "{error}");
    let asked = asked("NVIDIA_REQUIRE_CUDA", &long(LONGEST + 8));
    assert_eq!(check(&asked, Requirements::Warn, || node).unwrap().warnings.len(), 1);
}

#[test]
fn of_many_requirements_some_are_told() {
    let node = facts("550.1", &[]);
    let many = |expression: &str| {
        let asked = asked("NVIDIA_REQUIRE_X", expression);
        let asked: Vec<Requirement> = asked.iter().cycle().take(1000).cloned().collect();
        check(&asked, Requirements::Enforce, || node.clone()).unwrap()
    };
    assert_eq!(many("cuda>=1").met.len(), 17);
    let warnings = many("os=linux").warnings;
    assert_eq!((warnings.len(), warnings[16].as_str()), (17, "and so on"));
}

proptest! {
    #[test]
    fn no_expression_makes_it_panic(text in "\\PC{0,40}", near in "(cuda|driver|arch|brand|[<>=!., ]|[0-9x]){0,30}") {
        let node = facts("550.163.01", &[L4, RTX, NEW]);
        let _ = held(&text, &node);
        let _ = held(&near, &node);
    }

    /// More alternatives never make it worse, more parts never better.
    #[test]
    fn or_widens_and_and_narrows(one in "(cuda|driver|arch)(=|!=|<|<=|>|>=)[0-9]{1,3}", other in "(cuda|driver|arch)(=|!=|<|<=|>|>=)[0-9]{1,3}") {
        let node = facts("550.163.01", &[L4]);
        let rank = |text: &str| ["met", "warned", "refused"].iter().position(|known| *known == word(text, &node));
        let (first, second) = (rank(&one), rank(&other));
        prop_assert_eq!(rank(&format!("{one} {other}")), first.min(second));
        prop_assert_eq!(rank(&format!("{one},{other}")), first.max(second));
    }

    /// A later version meets what an earlier one met with `>=`, and the other way round with `<`.
    #[test]
    fn versions_have_an_order(wanted in 1u64..600, here in 352u64..590) {
        let node = facts(&format!("{here}.1"), &[]);
        prop_assert_eq!(word(&format!("driver>={wanted}"), &node) == "met", here >= wanted);
        prop_assert_eq!(word(&format!("driver<{wanted}"), &node) == "met", here < wanted);
    }
}
