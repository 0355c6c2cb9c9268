package client_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

// A session, a message, and what the agent answers.
func Example() {
	c, err := client.New(client.Config{URL: client.DefaultURL, Token: os.Getenv("HOLDFAST_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx := context.Background()
	session, err := c.CreateSession(ctx, holdfast.CreateSession{Title: "an example"}, "")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Send(ctx, session.ID, holdfast.SendMessage{Text: "What is in this directory?"}); err != nil {
		log.Fatal(err)
	}
	for event, err := range c.Follow(ctx, session.ID, session.LastSeq, holdfast.EventTurnCompleted) {
		if err != nil {
			log.Fatal(err)
		}
		var end holdfast.TurnEnded
		if err := event.Decode(&end); err != nil {
			log.Fatal(err)
		}
		fmt.Println(end.Result)
		return
	}
}
