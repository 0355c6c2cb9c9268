package anthropic_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/anthropic"
)

func ExampleNew() {
	m, err := anthropic.New(anthropic.Config{Key: os.Getenv("ANTHROPIC_API_KEY"), Now: time.Now})
	if err != nil {
		log.Fatal(err)
	}
	for chunk, err := range m.Stream(context.Background(), model.Request{
		Model:    "claude-sonnet-5-5",
		Messages: []model.Message{{Role: model.User, Blocks: []model.Block{{Type: model.Text, Text: "Hello!"}}}},
	}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(chunk.Delta)
	}
}
