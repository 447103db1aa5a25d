//! Versions in image tags and program output, of which semantic versions are a part.

use semver::{BuildMetadata, Prerelease, Version};

/// Names of versions before a release. Any other suffix (`-eksbuild.2`, `-amd64`) comes from a builder: semver would
/// take it for a pre-release, which no requirement matches.
const EARLIER: [&str; 6] = ["rc", "alpha", "beta", "pre", "snapshot", "dev"];

/// The first version in a text: `v1.18.5`, `1.36`, `Kubernetes v1.36.3`, `v1.33.0-eksbuild.2`.
#[must_use]
pub fn parse(text: &str) -> Option<Version> {
    text.split_whitespace().find_map(of_word)
}

fn of_word(word: &str) -> Option<Version> {
    let word = word.strip_prefix('v').unwrap_or(word);
    let (core, rest) = word.split_at(word.find(['-', '+']).unwrap_or(word.len()));
    let numbers: Option<Vec<u64>> = core.split('.').map(|part| part.parse().ok()).collect();
    let (major, minor, patch) = match numbers?.as_slice() {
        [major, minor] => (*major, *minor, 0),
        [major, minor, patch] => (*major, *minor, *patch),
        _ => return None,
    };
    let suffix = rest.strip_prefix('-').unwrap_or_default();
    let suffix = suffix.split('+').next().unwrap_or_default();
    let is_earlier = EARLIER.iter().any(|name| suffix.starts_with(name));
    let pre = match is_earlier {
        true => Prerelease::new(suffix).ok()?,
        false => Prerelease::EMPTY,
    };
    Some(Version {
        major,
        minor,
        patch,
        pre,
        build: BuildMetadata::EMPTY,
    })
}

/// The tag of an image, if it has one: a digest alone names no version.
#[must_use]
pub fn of_image(image: &str) -> Option<&str> {
    let name = image.split('@').next().unwrap_or(image);
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split_once(':').map(|(_, tag)| tag)
}

#[cfg(test)]
mod tests {
    use semver::VersionReq;

    use super::*;

    #[test]
    fn versions_are_read_as_images_and_programs_say_them() {
        for (text, expected) in [
            ("v1.18.5", Some("1.18.5")),
            ("1.36", Some("1.36.0")),
            ("Kubernetes v1.36.3", Some("1.36.3")),
            ("reference-agent 0.1.0", Some("0.1.0")),
            ("v1.33.0-minimal-eksbuild.2", Some("1.33.0")),
            ("v1.2.3+k3s1", Some("1.2.3")),
            ("v1.19.0-rc.1", Some("1.19.0-rc.1")),
            ("latest", None),
            ("20260101", None),
            ("1.2.3.4", None),
            ("", None),
        ] {
            let found = parse(text).map(|version| version.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_came_before_a_release_is_none_that_a_requirement_names() {
        let affected = VersionReq::parse(">=1.18.0, <1.18.7").expect("a requirement");
        for (text, is_affected) in [
            ("v1.18.5", true),
            ("v1.18.6-somebodys.1", true),
            ("v1.18.7", false),
            ("v1.17.9", false),
            ("v1.18.7-rc.0", false),
        ] {
            let version = parse(text).expect(text);
            assert_eq!(affected.matches(&version), is_affected, "{text}");
        }
    }

    #[test]
    fn the_version_of_an_image_is_its_tag() {
        let digest = "sha256:99b029a0a7c2224dac8c1cc3b6b3ba52af00e2ff981d927e84260ee781e9753c";
        for (image, expected) in [
            ("quay.io/cilium/cilium:v1.18.5", Some("v1.18.5")),
            (
                &*format!("quay.io/cilium/cilium:v1.18.5@{digest}"),
                Some("v1.18.5"),
            ),
            ("localhost:5000/agent:1.0", Some("1.0")),
            ("localhost:5000/agent", None),
            (digest, Some(&digest[7..])),
            (&*format!("quay.io/cilium/cilium@{digest}"), None),
        ] {
            assert_eq!(of_image(image), expected, "{image}");
        }
        assert_eq!(of_image(digest).and_then(parse), None, "which is no version");
    }
}
