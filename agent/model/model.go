// Package model is what the agent loop talks to: messages, requests and the
// Provider interface.
//
// Providers live in sub-packages, each behind this one method. It imports the
// standard library and the vocabulary. Invariant: a Request holds everything
// the answer may depend on; a provider keeps no conversation of its own.
package model

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/holdfast-run/holdfast"
)

// Role is who speaks.
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

// Block is a piece of a message. Which fields count depends on Type.
type Block struct {
	Type BlockType `json:"type"`
	// Text is the text of text and thinking blocks and the content of a tool result.
	Text string `json:"text,omitempty"`
	// Signature belongs to thinking blocks and goes back unchanged. Redacted marks
	// one whose text the provider keeps: the signature is all there is of it.
	Signature string `json:"signature,omitempty"`
	Redacted  bool   `json:"redacted,omitempty"`
	// ID names a tool use; a tool result carries the id it answers.
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

// Tool is a tool as it is offered to the model.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
}

// Request is one model call.
type Request struct {
	// Session is for accounting and for the scripted model's `times`.
	Session  holdfast.SessionID
	Model    string
	System   string
	Messages []Message
	Tools    []Tool
	// MaxTokens bounds the answer; 0 leaves it to the provider.
	MaxTokens int
}

// Bytes is about how long the request is: a token is taken for four of them.
func (r *Request) Bytes() int64 {
	n := len(r.System)
	for i := range r.Tools {
		n += len(r.Tools[i].Name) + len(r.Tools[i].Description) + len(r.Tools[i].Schema)
	}
	for i := range r.Messages {
		for j := range r.Messages[i].Blocks {
			b := &r.Messages[i].Blocks[j]
			n += len(b.Text) + len(b.Name) + len(b.Input)
		}
	}
	return int64(n)
}

// ChunkType is the kind of a Chunk.
type ChunkType int

// The chunk types: deltas while a block grows, then the block whole, and one
// final ChunkDone.
const (
	ChunkText ChunkType = iota + 1
	ChunkThinking
	ChunkBlock
	ChunkDone
)

// Chunk is a piece of an answer as it streams in.
type Chunk struct {
	Type ChunkType
	// Delta is new text of ChunkText and ChunkThinking.
	Delta string
	// Block is a finished block of ChunkBlock.
	Block Block
	// StopReason ("end_turn", "tool_use", "max_tokens", …) and Usage come with ChunkDone.
	StopReason string
	Usage      holdfast.Usage
	// RequestID is the provider's name for the request; it comes with ChunkDone.
	RequestID string
}

// Failure is a provider's error. Retryable ones may be tried again when nothing
// of the answer was used.
type Failure struct {
	// Class is overloaded, rate_limit, api, invalid, authentication, cut or stall.
	Class     string
	Retryable bool
	// RetryAfter is what the provider asked for; 0 is unknown.
	RetryAfterSeconds float64
	Message           string
	// Hint helps where the failure will not pass by itself.
	Hint string
	// Usage is what the failed call cost all the same.
	Usage     holdfast.Usage
	RequestID string
}

// Error renders "model: class: message".
func (f *Failure) Error() string { return "model: " + f.Class + ": " + f.Message }

// Provider answers requests.
type Provider interface {
	// Stream yields the answer's chunks in order and ends with exactly one
	// ChunkDone, or with an error (a *Failure where the provider said why). It
	// stops when the consumer stops or ctx ends. Safe for concurrent use; it does
	// not retry and does not keep the request.
	Stream(ctx context.Context, req Request) iter.Seq2[Chunk, error]
}

// Lister is a Provider that can say which models it has.
type Lister interface {
	// Models returns their names in the provider's order. It fails with a *Failure where
	// the provider did not answer, or did not answer with a list. Safe for concurrent use.
	Models(ctx context.Context) ([]string, error)
}

// Book says what there is to know of models beside their answers. Safe for
// concurrent use.
type Book interface {
	// Provider names who is asked over the network for a model's answer; empty for
	// a model that is asked within the process.
	Provider(model string) string
	// Price sets the cost of a usage, or counts it as unpriced.
	Price(model string, u holdfast.Usage) holdfast.Usage
}
