// Package guard decides whether a request reaches its route, by its host and origin, its sender,
// the sender's request rate, and its idempotency key, query and body.
//
// It owns the checks in front of the routes of httpapi, the limits for each caller, the
// memory that large bodies may take, and the writer of answers, which cuts off clients
// that do not read. The requirements of each route are a Rule, which httpapi sets. Only httpapi
// and app may import it; it imports the vocabulary, the journal (for who caused an event), obs
// (for the id of a request) and the packages problem and body. Invariant (I-22): a route that is not public sees
// only requests of the owner, or of a valid key whose scopes and maximum trust cover
// them; a request that is refused changes nothing.
package guard
