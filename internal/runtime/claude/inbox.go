package claude

import (
	"encoding/json"
	"slices"

	"github.com/holdfast-run/holdfast/internal/jsonrpc"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// pending is a request of the CLI about a tool use.
type pending struct {
	ID  string `json:"id"`
	Use string `json:"use"`
	// Kind is one of kindPre, kindCan, kindPost and kindCall.
	Kind string `json:"kind"`
	// Name is the tool of a request of kind kindPre or kindCan; empty if an older server stored it.
	Name string `json:"name,omitempty"`
	// Input is the tool's input if it differs from the input in tool.requested. For a request of kind
	// kindPost it is the tool's outcome as hooks receive it.
	Input json.RawMessage `json:"input,omitempty"`
	// ReplyTo is the id of the request within an MCP message.
	ReplyTo jsonrpc.ID `json:"reply_to,omitzero"`
}

// The kinds of requests that the state stores until they are over. The CLI asks before a tool use (kindPre),
// for its permission (kindCan) and after it (kindPost), or calls a tool of the server (kindCall). The next
// server answers each again from the log; the answers themselves are not stored, because they may be large.
const (
	kindPre  = "pre"
	kindCan  = "can"
	kindPost = "post"
	kindCall = "call"
)

// open reports whether with this request the CLI waits for a decision, or for a tool of the server.
func (p pending) open() bool { return p.Kind != kindPost }

const (
	// mostPending is the most requests of the CLI that the state may hold, mostKept their most
	// bytes: together with the Outbox less than the store accepts for a state.
	mostPending = 96
	mostKept    = 96 << 10
)

// inbox holds the CLI's requests that are not over.
type inbox struct {
	out  *resident.Outbox
	rec  *resident.Recorder
	list []pending
}

// has reports whether the inbox holds a request with this id.
func (b *inbox) has(id string) bool {
	return slices.ContainsFunc(b.list, func(p pending) bool { return p.ID == id })
}

// fits reports whether the state has room for a request.
func (b *inbox) fits(p pending) bool {
	return len(b.list) < mostPending && len(resident.Marshal(append(slices.Clip(b.list), p))) <= mostKept
}

// add adds a request and marks the state as changed.
func (b *inbox) add(p pending) {
	b.list = append(b.list, p)
	b.rec.Touch()
}

// answer queues the answer to a request that the inbox does not hold. If this server dies before
// the answer is sent, the next one sends it: it does not read the request again.
func (b *inbox) answer(id string, line []byte) {
	if id == "" || !b.has(id) {
		b.out.Add(line, "")
	}
}

// spare removes the stored input of the request with the given id, which nothing reads again, to save memory.
func (b *inbox) spare(id string) {
	for i := range b.list {
		if p := &b.list[i]; p.ID == id && p.Input != nil {
			p.Input = nil
			b.rec.Touch()
		}
	}
}

// drop removes each request for which the given function returns true.
func (b *inbox) drop(which func(pending) bool) { b.list = slices.DeleteFunc(b.list, which) }

// opens reports whether any request in the inbox waits for a decision or for a tool of the server.
func (b *inbox) opens() bool { return slices.ContainsFunc(b.list, pending.open) }
