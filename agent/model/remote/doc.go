// Package remote is what providers over the network share: a transport that
// gives up on silence, and failures read from statuses and headers.
//
// The provider packages import it; it imports agent/model. Invariant (I-22): no
// failure it makes carries a key or a header of the request.
package remote
