package openai_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/openai"
)

func ExampleNew() {
	m, err := openai.New(openai.Config{Key: os.Getenv("OPENAI_API_KEY"), Now: time.Now})
	if err != nil {
		log.Fatal(err)
	}
	for chunk, err := range m.Stream(context.Background(), model.Request{
		Model:    "gpt-5.2",
		Messages: []model.Message{{Role: model.User, Blocks: []model.Block{{Type: model.Text, Text: "Hello!"}}}},
	}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(chunk.Delta)
	}
}
