package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/policy"
)

type weather struct{}

func (weather) Spec() tool.Spec {
	return tool.Spec{
		Name: "get_weather", Description: "Tells the weather of a city.",
		Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`),
		Effect: tool.Read, Where: tool.InServer,
	}
}

func (weather) Run(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{Content: "sunny"}, nil
}

func Example() {
	decider, err := policy.New(policy.Config{Tools: []policy.Tool{{Name: "get_weather", Class: policy.ClassReads}}})
	if err != nil {
		log.Fatal(err)
	}
	a, err := agent.New(agent.Config{
		Provider: scripted.New(), // or anthropic.New, openai.New
		Tools:    []tool.Tool{weather{}},
		Policy:   decider,
	})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := a.Say(context.Background(), `<script>[{"tool":"get_weather","input":{"city":"Oslo"}},{"say":"It is sunny."}]</script>`)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text, answer.Steps)
	// Output: It is sunny. 2
}
