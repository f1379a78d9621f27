use proptest::prelude::*;

use super::*;

fn invoke(program: &str, words: &[&str]) -> Result<Invocation, UsageError> {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    Invocation::parse(OsStr::new(program), &words, |_| None)
}

fn work_of(words: &[&str]) -> Work {
    match invoke("nvidia-cdi-hook", words).unwrap().command {
        Command::Apply { work, .. } => *work,
        other => panic!("{other:?}"),
    }
}

fn link(target: &str, link: &str) -> Link {
    Link { link: link.into(), target: target.into() }
}

#[test]
fn flags_in_every_form() {
    let expected = vec![link("a", "/x/1"), link("b", "/x/2")];
    for words in [
        &["create-symlinks", "--link", "a::/x/1", "--link", "b::/x/2"][..],
        &["create-symlinks", "-link=a::/x/1", "-link", "b::/x/2"],
        &["create-symlinks", "--link=a::/x/1,b::x/2"],
        &["--debug", "create-symlinks", "stray", "--link=a::/x/1", "--link=b::/x/2", "--", "--x"],
    ] {
        assert_eq!(work_of(words).links, expected, "{words:?}");
    }
}

#[test]
fn a_comma_parts_values_only_where_nvidias_program_does() {
    let links = |program: &str, words: &[&str]| match invoke(program, words).unwrap().command {
        Command::Apply { work, .. } => work.links,
        other => panic!("{other:?}"),
    };
    let expected = vec![link("a", "/x/1,2")];
    assert_eq!(links("nvidia-cdi-hook", &["apply", "--link", "a::/x/1,2"]), expected);
    for program in ["/usr/bin/nvidia-ctk", "nvidia-ctk-hook"] {
        let words = ["hook", "create-symlinks", "--link", "a::/x/1,2"];
        assert_eq!(links(program, &words), expected, "{program}");
    }
    assert_eq!(links("nvidia-ctk-hook", &["create-symlinks", "--link", "a::/x/1,2"]), expected);
}

#[test]
fn what_is_unknown_is_a_warning_unless_the_command_is_known() {
    for words in [&[][..], &["--bogus"], &["mknod", "--x"], &["hook", "create-symlinks"]] {
        let command = invoke("nvidia-cdi-hook", words).unwrap().command;
        assert!(matches!(command, Command::Nothing { .. }), "{words:?}");
    }
    for (words, what) in [
        (&["create-symlinks", "--links", "a::b"][..], "unknown flag --links"),
        (&["--bogus", "create-symlinks"], "unknown flag --bogus"),
        (&["create-symlinks", "--link"], "--link has no value"),
        (&["create-symlinks", "--link", "a::b::c"], "a::b::c is not TARGET::LINK"),
        (&["create-symlinks", "--link", "::/x"], "is not TARGET::LINK"),
        (&["chmod", "--path", "/a"], "--mode \"\" is not octal"),
        (&["chmod", "--mode", "888", "--path", "/a"], "--mode \"888\" is not octal"),
        (&["chmod", "--mode", "755", "--path", " "], "--path is empty"),
        (&["update-ldcache", "--ldconfig-path="], "--ldconfig-path is empty"),
    ] {
        let error = invoke("nvidia-cdi-hook", words).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("--help"), "{error}");
    }
    let error = invoke("/usr/bin/nvidia-ctk", &["cdi", "generate"]).unwrap_err().to_string();
    assert!(error.contains("only nvidia-ctk hook COMMAND is here"), "{error}");
}

#[test]
fn commands_mean_their_part_of_the_work() {
    assert_eq!(work_of(&["update-ldcache"]).folders, Some(vec![]));
    assert_eq!(work_of(&["enable-cuda-compat"]), Work::default());
    let host = CudaCompat {
        driver: Some("535.1".to_owned()),
        cuda: None,
        directory: CudaCompat::DIRECTORY.into(),
    };
    let words = ["enable-cuda-compat", "--host-driver-version=535.1", "--host-cuda-version="];
    assert_eq!(work_of(&words).compat, Some(host));
    assert!(work_of(&["disable-device-node-modification"]).mask_params);
    assert!(work_of(&["update-application-profile"]).profile);
    let modes = work_of(&["chmod", "--mode", "0755", "--path", "/a", "--path", "/b"]).modes;
    assert_eq!(modes, [(PathBuf::from("/a"), 0o755), (PathBuf::from("/b"), 0o755)]);
}

#[test]
fn how_much_is_said_is_told_by_flags_and_environment() {
    let level = |words: &[&str], env: &[(&str, &str)]| {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let value = |name: &str| {
            env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Invocation::parse(OsStr::new("nvidia-cdi-hook"), &words, value).unwrap().level
    };
    assert_eq!(level(&["noop"], &[]), LevelFilter::Warn);
    assert_eq!(level(&["noop"], &[("NVIDIA_CTK_DEBUG", "false")]), LevelFilter::Warn);
    assert_eq!(level(&["noop"], &[("NVIDIA_CDI_DEBUG", "1")]), LevelFilter::Debug);
    assert_eq!(level(&["-d", "noop"], &[]), LevelFilter::Debug);
    assert_eq!(level(&["-d", "--quiet", "noop"], &[]), LevelFilter::Error);
}

#[test]
fn help_names_all_flags() {
    let Command::Print(text) = invoke("nvidia-cdi-hook", &["--help"]).unwrap().command else {
        panic!("no help");
    };
    for verb in COMMANDS.iter().filter(|verb| verb.name != "noop") {
        assert!(text.contains(verb.name), "{}", verb.name);
        let command = invoke("nvidia-cdi-hook", &[verb.name, "--help"]).unwrap().command;
        let Command::Print(text) = command else { panic!("no help of {}", verb.name) };
        assert!(verb.flags.iter().all(|flag| text.contains(flag.name)), "{text}");
    }
}

#[test]
fn the_document_names_all_commands_and_flags() {
    let document = include_str!("../../../docs/nvidia-cdi-hook.md");
    for verb in COMMANDS.iter().filter(|verb| verb.name != "noop") {
        let row = format!("| `{}` |", verb.name);
        let row = document.lines().find(|line| line.starts_with(&row)).unwrap();
        for flag in verb.flags.iter().filter(|_| verb.name != APPLY) {
            let name = format!("`--{}", flag.name);
            assert!(
                row.contains(&name)
                    || document.contains(&format!("takes {name}"))
                    || flag.name == "help",
                "{}: {name}",
                verb.name
            );
        }
    }
    for flag in COMMANDS.iter().flat_map(|verb| verb.flags) {
        assert!(document.contains(&format!("`--{}", flag.name)), "{}", flag.name);
    }
}

proptest! {
    #[test]
    fn words_of_any_kind_are_read_or_refused(
        program in "nvidia-(ctk|cdi-hook|ctk-hook)",
        words in prop::collection::vec(
            "(--?)?(hook|apply|chmod|link|file|mode|path|folder|help|debug)?(=?[a-z0-9:,/ é-]{0,9})",
            0..7,
        ),
    ) {
        let _ = Invocation::parse(OsStr::new(&program), &words, |_| None);
    }

    #[test]
    fn words_of_work_mean_that_work(
        links in prop::collection::vec(("[a-z,./=-]{1,9}", "/[a-z,./= -]{1,9}"), 0..4),
        files in prop::collection::vec(("/[a-z,.=-]{1,9}", "[a-z:\n{}\"= -]{0,9}"), 0..3),
        folders in prop::collection::vec("/[a-z,./= -]{1,9}", 0..4),
        driver in prop::option::of("[0-9.]{1,9}"),
        cuda in prop::option::of("[0-9.]{1,9}"),
        profile: bool,
        mask_params: bool,
    ) {
        let mut work = Work {
            links: links.iter().map(|(target, path)| link(target, path)).collect(),
            files: files
                .into_iter()
                .map(|(path, content)| GeneratedFile { path: path.into(), content })
                .collect(),
            profile,
            mask_params,
            ..Work::default()
        };
        if driver.is_some() || cuda.is_some() {
            work.compat = Some(CudaCompat { driver, cuda, directory: "/opt/compat".into() });
        }
        work.add_folders(&folders.iter().map(PathBuf::from).collect::<Vec<_>>());
        let words = work.to_words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        prop_assert_eq!(work_of(&words), work);
    }
}
