// Package guard decides whether a request reaches its route: by where it was sent, who
// sent it, how often, and with what key, query and body.
//
// It owns the checks in front of the routes of httpapi, the limits for each caller, the
// memory that large bodies may take, and the writer of answers, which cuts off readers
// that take nothing. Which route asks for what is a Rule, given by httpapi. Only httpapi
// and app may import it; it imports the vocabulary, the journal (for who caused an event)
// and the packages problem and body. Invariant (I-22): a route that is not public sees
// only requests of the owner, or of a valid key whose scopes and maximum trust cover
// them; a request that is refused changes nothing.
package guard
