//! What becomes of dependents: foreground, background, orphaned; finalizers that hold an object up.

use serde_json::{Value, json};

use crate::{watching::Watching, world::World};

/// What an event shows of deletion: its type, the name, whether it is marked, finalizers, names of owners.
type Seen = (String, String, bool, Vec<String>, Vec<String>);

fn texts<'a>(list: &'a Value, text: impl Fn(&'a Value) -> &'a Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(|one| text(one).as_str())
        .map(str::to_owned)
        .collect()
}

async fn next(watching: &mut Watching) -> Seen {
    let event = watching.next().await.expect("an event");
    let meta = &event["object"]["metadata"];
    (
        event["type"].as_str().expect("a type").to_owned(),
        meta["name"].as_str().expect("a name").to_owned(),
        meta["deletionTimestamp"].is_string(),
        texts(&meta["finalizers"], |finalizer| finalizer),
        texts(&meta["ownerReferences"], |owner| &owner["name"]),
    )
}

fn seen(what: &str, name: &str, marked: bool, finalizers: &[&str], owners: &[&str]) -> Seen {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    (
        what.to_owned(),
        name.to_owned(),
        marked,
        texts(finalizers),
        texts(owners),
    )
}

/// Creates a Secret with these owners (which it blocks) and finalizers.
async fn create(world: &World, name: &str, owners: &[(&Value, bool)], finalizers: &[&str]) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(owner, block)| {
            json!({"apiVersion": "v1", "kind": "Secret", "name": owner["metadata"]["name"],
                   "uid": owner["metadata"]["uid"], "blockOwnerDeletion": block})
        })
        .collect();
    let metadata = json!({"name": name, "ownerReferences": owners, "finalizers": finalizers});
    world.create("secrets", &json!({"metadata": metadata})).await
}

async fn watch(world: &World) -> Watching {
    let (_, list) = world.raw("GET", &world.path("secrets"), "", "").await;
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    Watching::of(world, "secrets", &format!("resourceVersion={version}")).await
}

async fn delete(world: &World, name: &str, policy: &str) -> Value {
    let mut path = format!("{}/{name}", world.path("secrets"));
    if !policy.is_empty() {
        path.push_str(&format!("?propagationPolicy={policy}"));
    }
    let (code, answer) = world.raw("DELETE", &path, "", "").await;
    assert_eq!(code, 200, "{answer}");
    answer
}

async fn release(world: &World, name: &str) -> Value {
    let none = json!({"metadata": {"finalizers": null, "labels": {"released": "x"}}});
    let (code, answer) = world.patch("secrets", name, "merge-patch", &none).await;
    assert_eq!(code, 200, "{answer}");
    answer
}

#[tokio::test]
async fn a_foreground_deletion_waits_for_what_blocks_it() {
    let world = World::new().await;
    let owner = create(&world, "owner", &[], &[]).await;
    let other = create(&world, "other", &[], &[]).await;
    create(&world, "blocks", &[(&owner, true)], &["example.com/a"]).await;
    create(&world, "follows", &[(&owner, false)], &[]).await;
    create(&world, "shared", &[(&owner, true), (&other, true)], &[]).await;
    let mut watching = watch(&world).await;
    let marked = delete(&world, "owner", "Foreground").await;
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(
        next(&mut watching).await,
        seen("MODIFIED", "owner", true, &["foregroundDeletion"], &[])
    );
    let mut events = Vec::new();
    while events.len() < 3 {
        events.push(next(&mut watching).await);
    }
    events.sort();
    let expected = [
        seen("DELETED", "follows", false, &[], &["owner"]),
        seen("MODIFIED", "blocks", true, &["example.com/a"], &["owner"]),
        seen("MODIFIED", "shared", false, &[], &["other"]),
    ];
    assert_eq!(events, expected);
    let path = format!("{}/owner", world.path("secrets"));
    assert_eq!(world.raw("GET", &path, "", "").await.0, 200, "it waits");
    let released = release(&world, "blocks").await;
    assert_eq!(
        (
            &released["metadata"]["finalizers"],
            &released["metadata"]["labels"]["released"]
        ),
        (&Value::Null, &json!("x"))
    );
    assert_eq!(
        next(&mut watching).await,
        seen("DELETED", "blocks", true, &["example.com/a"], &["owner"])
    );
    assert_eq!(
        next(&mut watching).await,
        seen("DELETED", "owner", true, &["foregroundDeletion"], &[])
    );
    world.end().await;
}

#[tokio::test]
async fn a_foreground_deletion_goes_down_to_the_last_dependent_first() {
    let world = World::new().await;
    let top = create(&world, "top", &[], &[]).await;
    let middle = create(&world, "middle", &[(&top, true)], &[]).await;
    create(&world, "bottom", &[(&middle, true)], &[]).await;
    let mut watching = watch(&world).await;
    delete(&world, "top", "Foreground").await;
    let expected = [
        seen("MODIFIED", "top", true, &["foregroundDeletion"], &[]),
        seen("MODIFIED", "middle", true, &["foregroundDeletion"], &["top"]),
        seen("DELETED", "bottom", false, &[], &["middle"]),
        seen("DELETED", "middle", true, &["foregroundDeletion"], &["top"]),
        seen("DELETED", "top", true, &["foregroundDeletion"], &[]),
    ];
    for event in expected {
        assert_eq!(next(&mut watching).await, event);
    }
    world.end().await;
}

#[tokio::test]
async fn those_that_own_each_other_go_all_the_same() {
    let world = World::new().await;
    let one = create(&world, "one", &[], &[]).await;
    let two = create(&world, "two", &[(&one, true)], &[]).await;
    let owners = json!([{"apiVersion": "v1", "kind": "Secret", "name": "two", "uid": two["metadata"]["uid"],
                         "blockOwnerDeletion": true}]);
    let circle = json!({"metadata": {"ownerReferences": owners}});
    assert_eq!(world.patch("secrets", "one", "merge-patch", &circle).await.0, 200);
    let mut watching = watch(&world).await;
    delete(&world, "one", "Foreground").await;
    let mut gone = Vec::new();
    while gone.len() < 2 {
        let (what, name, ..) = next(&mut watching).await;
        gone.extend((what == "DELETED").then_some(name));
    }
    gone.sort();
    assert_eq!(gone, ["one", "two"]);
    world.end().await;
}

#[tokio::test]
async fn an_orphaning_deletion_frees_dependents_before_their_owner_goes() {
    let world = World::new().await;
    for (name, finalizers, policy) in [("asked", &[][..], "Orphan"), ("kept", &["orphan"], "")] {
        let owner = create(&world, name, &[], finalizers).await;
        let dependent = format!("{name}-dependent");
        create(&world, &dependent, &[(&owner, true)], &[]).await;
        let mut watching = watch(&world).await;
        let marked = delete(&world, name, policy).await;
        assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
        assert_eq!(
            next(&mut watching).await,
            seen("MODIFIED", name, true, &["orphan"], &[])
        );
        assert_eq!(
            next(&mut watching).await,
            seen("MODIFIED", &dependent, false, &[], &[])
        );
        assert_eq!(
            next(&mut watching).await,
            seen("DELETED", name, true, &["orphan"], &[])
        );
    }
    world.end().await;
}

#[tokio::test]
async fn a_background_deletion_takes_dependents_along_afterwards() {
    let world = World::new().await;
    let owner = create(&world, "owner", &[], &["foregroundDeletion"]).await;
    create(&world, "dependent", &[(&owner, true)], &[]).await;
    let mut watching = watch(&world).await;
    let answer = delete(&world, "owner", "Background").await;
    assert_eq!(answer["kind"], "Status", "{answer}");
    let events = [next(&mut watching).await, next(&mut watching).await];
    assert_eq!(
        events[0],
        seen("DELETED", "owner", false, &["foregroundDeletion"], &[])
    );
    assert_eq!(events[1], seen("DELETED", "dependent", false, &[], &["owner"]));
    world.end().await;
}

#[tokio::test]
async fn options_in_a_body_are_the_only_ones() {
    let world = World::new().await;
    create(&world, "owner", &[], &[]).await;
    let path = format!(
        "{}/owner?propagationPolicy=Orphan&dryRun=All",
        world.path("secrets")
    );
    let json = "application/json";
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true}).to_string();
    let (code, status) = world.raw("DELETE", &path, json, &both).await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["field"]),
        (422, &json!("propagationPolicy"))
    );
    let (code, answer) = world.raw("DELETE", &path, json, "{}").await;
    assert_eq!(
        (code, &answer["kind"]),
        (200, &json!("Status")),
        "neither a dry run nor orphans: {answer}"
    );
    assert_eq!(world.raw("GET", &path, "", "").await.0, 404);
    world.end().await;
}
