// Package remote has the common code of model providers on the network: a transport that
// cancels silent requests, and the conversion of HTTP statuses and headers to failures.
//
// The provider packages, internal/app and internal/egress import it; it imports agent/model and the
// vocabulary. Invariant (I-22): no failure it makes contains an API key or a header of the request.
package remote
