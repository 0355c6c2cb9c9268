// Package model defines the interface between the agent loop and models: messages, requests, the
// Provider interface, and the Meter interface, which keeps model calls within budgets.
//
// Providers are implemented in sub-packages. This package imports the standard library and the vocabulary.
// Invariant: a Request holds everything that the answer may depend on; a provider stores no
// conversation.
package model

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Role says who made a message.
type Role string

// The roles.
const (
	User      Role = "user"
	Assistant Role = "assistant"
)

// BlockType is the kind of a content block.
type BlockType string

// The block types.
const (
	Text       BlockType = "text"
	Thinking   BlockType = "thinking"
	ToolUse    BlockType = "tool_use"
	ToolResult BlockType = "tool_result"
)

// Block is a piece of a message. Its Type determines which fields are used.
type Block struct {
	Type BlockType `json:"type"`
	// Text is the text of text and thinking blocks and the content of a tool result.
	Text string `json:"text,omitempty"`
	// Signature is the provider's signature of a thinking block, which later requests have to
	// send back unchanged. Redacted is true if the provider withholds the block's text, so that
	// the block has only a signature.
	Signature string `json:"signature,omitempty"`
	Redacted  bool   `json:"redacted,omitempty"`
	// ID is the id of a tool use; in a tool result, the id of the tool use that it answers.
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	// IsError marks a tool result that is a failure.
	IsError bool `json:"is_error,omitempty"`
}

// Message is one entry of the conversation.
type Message struct {
	Role   Role    `json:"role"`
	Blocks []Block `json:"blocks"`
}

// Tool describes a tool to the model.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
}

// Request is one model call.
type Request struct {
	// Session is the session that the call is made for. The scripted model counts the faults of its scripts by session.
	Session  holdfast.SessionID
	Model    string
	System   string
	Messages []Message
	Tools    []Tool
	// MaxTokens is the greatest number of tokens of the answer; 0 means the provider's default.
	MaxTokens int
	// Counted is the number and the size of the request's first messages, if the caller has counted them already.
	Counted Counted
}

// Counted is the number of a request's first messages and their size, which Bytes then does not
// count again.
type Counted struct {
	Messages int
	Bytes    int64
}

// Count adds the sizes of further messages to c, until c covers the first upTo messages.
func (c *Counted) Count(messages []Message, upTo int) {
	for ; c.Messages < upTo; c.Messages++ {
		for i := range messages[c.Messages].Blocks {
			b := &messages[c.Messages].Blocks[i]
			c.Bytes += int64(len(b.Text) + len(b.Name) + len(b.Input))
		}
	}
}

// Bytes returns the approximate size of the request. Callers assume four bytes for a token.
func (r *Request) Bytes() int64 {
	n := len(r.System)
	for i := range r.Tools {
		n += len(r.Tools[i].Name) + len(r.Tools[i].Description) + len(r.Tools[i].Schema)
	}
	counted := r.Counted
	counted.Count(r.Messages, len(r.Messages))
	return int64(n) + counted.Bytes
}

// ChunkType is the kind of a Chunk.
type ChunkType int

// The chunk types: deltas while a block is produced, then the complete block, and at the end of
// the answer one ChunkDone.
const (
	ChunkText ChunkType = iota + 1
	ChunkThinking
	ChunkBlock
	ChunkDone
)

// Chunk is a piece of an answer as it streams in.
type Chunk struct {
	Type ChunkType
	// Delta is the new text of a ChunkText or ChunkThinking.
	Delta string
	// Block is the complete block of a ChunkBlock.
	Block Block
	// StopReason ("end_turn", "tool_use", "max_tokens", …) and Usage are set in ChunkDone.
	StopReason string
	Usage      holdfast.Usage
	// RequestID is the provider's id of the request; it is set in ChunkDone.
	RequestID string
}

// Failure is the error of a failed model call. If it is Retryable, the call may be repeated,
// provided that no part of the answer was used.
type Failure struct {
	// Class is overloaded, rate_limit, api, invalid, authentication, permission, canceled, cut or stall.
	Class     string
	Retryable bool
	// RetryAfterSeconds is how long the provider asked to wait; 0 if not known.
	RetryAfterSeconds float64
	Message           string
	// Hint says what to do about a failure that does not pass by itself; may be empty.
	Hint string
	// Usage is what the failed call used up nevertheless.
	Usage     holdfast.Usage
	RequestID string
}

// Error returns the text "model: class: message".
func (f *Failure) Error() string { return "model: " + f.Class + ": " + f.Message }

// Provider answers model requests.
type Provider interface {
	// Stream yields the answer's chunks in order. It ends with exactly one ChunkDone, or with an
	// error (a *Failure if the provider gave a reason). It stops when the consumer stops or ctx
	// ends. Safe for concurrent use. It does not retry and does not retain the request.
	Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error]
}

// Lister is implemented by Providers that can list their models.
type Lister interface {
	// Models returns the names of the models in the provider's order. It fails with a *Failure if
	// the provider did not answer with a list. Safe for concurrent use.
	Models(ctx context.Context) ([]string, error)
}

// Book has information about models: their provider and their prices. Safe for concurrent use.
type Book interface {
	// Provider returns the name of the provider that runs a model; empty for a model that runs
	// in this process, such as the scripted one.
	Provider(model string) string
	// Price returns u with its cost set, or counted as an unpriced call if no price is known.
	Price(model string, u holdfast.Usage) holdfast.Usage
}

// Meter enforces the budgets of a turn. Safe for concurrent use.
type Meter interface {
	// Bounded reports whether any budget applies. If none does, the caller may reserve zero instead
	// of an estimate.
	Bounded() bool
	// Reserve sets aside the most that a model call may use, before the call. If that would exceed
	// a budget, it returns KindDenied and names the budget. The caller calls settle once, before
	// the answer is recorded, with the actual usage and whether the call was answered.
	Reserve(most holdfast.Usage) (settle func(used holdfast.Usage, answered bool), err error)
	// Park waits until the time at which the provider accepts calls again. The caller has recorded a
	// notice that says so. Park returns ctx's cause when ctx ends, or an error that ends the run but
	// not the turn.
	Park(ctx context.Context, until time.Time) error
}
