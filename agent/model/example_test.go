package model_test

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/holdfast-run/holdfast/agent/model"
)

// shout is a model that repeats what it hears, louder.
type shout struct{}

func (shout) Stream(_ context.Context, req model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		last := req.Messages[len(req.Messages)-1]
		text := strings.ToUpper(last.Blocks[0].Text)
		_ = yield(model.Chunk{Type: model.ChunkText, Delta: text}, nil) &&
			yield(model.Chunk{Type: model.ChunkBlock, Block: model.Block{Type: model.Text, Text: text}}, nil) &&
			yield(model.Chunk{Type: model.ChunkDone, StopReason: "end_turn"}, nil)
	}
}

func ExampleProvider() {
	var p model.Provider = shout{}
	for chunk, err := range p.Stream(context.Background(), model.Request{
		Messages: []model.Message{{Role: model.User, Blocks: []model.Block{{Type: model.Text, Text: "hello"}}}},
	}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if chunk.Type == model.ChunkText {
			fmt.Println(chunk.Delta)
		}
	}
	// Output: HELLO
}
