package claude

import (
	"encoding/json"
	"slices"

	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// pending is a request of the CLI about a tool use.
type pending struct {
	ID  string `json:"id"`
	Use string `json:"use"`
	// Kind is pre, can, post or call.
	Kind string `json:"kind"`
	// Input is the tool's input where that is not the input of tool.requested; of a post
	// it is the outcome of the tool, as hooks get it.
	Input json.RawMessage `json:"input,omitempty"`
	// ReplyTo is the id within an MCP message.
	ReplyTo json.RawMessage `json:"reply_to,omitempty"`
}

// The kinds of requests that are kept until they are over. Each gets its answer again from
// the next server: made from the log, because it may be large.
const (
	kindPre  = "pre"
	kindCan  = "can"
	kindPost = "post"
	kindCall = "call"
)

// open reports whether the CLI waits for a decision or for a tool of the server.
func (p pending) open() bool { return p.Kind != kindPost }

const (
	// mostPending is how many requests of the CLI the state may hold, mostKept bounds
	// their bytes: with the Outbox less than the store takes of a state.
	mostPending = 96
	mostKept    = 96 << 10
)

// inbox holds the requests of the CLI that are not over.
type inbox struct {
	out  *resident.Outbox
	rec  *resident.Recorder
	list []pending
}

// has reports whether a request is held.
func (b *inbox) has(id string) bool {
	return slices.ContainsFunc(b.list, func(p pending) bool { return p.ID == id })
}

// fits reports whether the state has room for a request.
func (b *inbox) fits(p pending) bool {
	return len(b.list) < mostPending && len(resident.Marshal(append(slices.Clip(b.list), p))) <= mostKept
}

// add holds a request.
func (b *inbox) add(p pending) {
	b.list = append(b.list, p)
	b.rec.Touch()
}

// answer answers a request that waits for nothing. A server that dies between the commit
// and the sending leaves the answer to the next one, which does not read the request again.
func (b *inbox) answer(id string, line []byte) {
	if id == "" || !b.has(id) {
		b.out.Add(line, "")
	}
}

// spare forgets the input of a request that is not needed any more.
func (b *inbox) spare(id string) {
	for i := range b.list {
		if p := &b.list[i]; p.ID == id && p.Input != nil {
			p.Input = nil
			b.rec.Touch()
		}
	}
}

// drop forgets requests.
func (b *inbox) drop(which func(pending) bool) { b.list = slices.DeleteFunc(b.list, which) }

// opens reports whether the CLI waits for a decision or for a tool of the server.
func (b *inbox) opens() bool { return slices.ContainsFunc(b.list, pending.open) }
