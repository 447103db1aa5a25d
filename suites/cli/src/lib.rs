//! Conformance and chaos tests for Kubernetes service load balancers.
