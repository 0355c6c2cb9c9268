package policy_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
)

func ExampleEngine_Decide() {
	rules, err := policy.ParseRules([]string{"Bash(git *)"}, nil, []string{"Bash(git push *)"})
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := policy.New(policy.Config{Rules: rules})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, command := range []string{"git status", "git push origin main"} {
		input, _ := json.Marshal(map[string]string{"command": command})
		d, err := engine.Decide(context.Background(), policy.Request{Mode: holdfast.ModeDefault, Tool: "Bash", Input: input})
		fmt.Println(d.Verdict == policy.Allowed, d.Rule, err)
	}
	// Output:
	// true Bash(git *) <nil>
	// false Bash(git push *) <nil>
}
