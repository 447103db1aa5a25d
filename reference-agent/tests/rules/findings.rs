//! What is found about one object costs it nothing else, and others nothing at all.

use reference_agent::{findings::NAMED, model::Event, plan, testing::objects::service};

use super::support::{findings, frontends, here, marked, model};

#[test]
fn of_many_findings_of_one_reason_few_are_named_and_the_others_counted() {
    let ports: Vec<_> = (1..=NAMED + 5)
        .map(|port| format!("TCP {port} p{port}"))
        .collect();
    let ports: Vec<_> = ports.iter().map(String::as_str).collect();
    let older = service("t/a", "10.96.0.1", &ports);
    let younger = service("t/b", "10.96.0.1,10.96.0.2", &ports);
    let model = model([older, younger].map(Event::ServiceApplied));
    let told = findings(&model, "t/b");
    assert_eq!(told.len(), NAMED + 1);
    assert_eq!(told[0], "FrontendTaken: 5 more of this kind");
    assert_eq!(
        frontends(&model).len(),
        2 * ports.len(),
        "what is free is served all the same"
    );
}

#[test]
fn whoever_is_told_whose_a_frontend_is_is_told_again_when_it_changes_hands() {
    let wants = |name: &str, created| {
        let mut object = service(name, "10.96.0.1", &["TCP 80"]);
        object.created = Some(created);
        Event::ServiceApplied(object)
    };
    let mut model = model([wants("t/second", 2), wants("t/third", 3)]);
    let owner = |model: &reference_agent::model::Model| findings(model, "t/third").concat();
    assert!(owner(&model).contains("is Service t/second's"));
    let dirty = plan::apply(&mut model, &here(), wants("t/first", 1));
    assert_eq!(marked(&model, &dirty), ["t/first", "t/second", "t/third"]);
    assert!(owner(&model).contains("is Service t/first's"));
    let dirty = plan::apply(&mut model, &here(), wants("t/fourth", 4));
    assert_eq!(marked(&model, &dirty), ["t/fourth"], "it changes hands no more");
}
