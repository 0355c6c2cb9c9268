package child

import "encoding/json"

// Step is a step of the scripted model.
type Step map[string]any

// Bash returns the step that runs a command.
func Bash(command string) Step { return tool("Bash", Step{"command": command}) }

// Write returns the step that writes a file.
func Write(path, content string) Step {
	return tool("Write", Step{"file_path": path, "content": content})
}

// Say returns the step that ends a turn with an answer.
func Say(text string) Step { return Step{"say": text} }

func tool(name string, input Step) Step { return Step{"tool": name, "input": input} }

// Script returns a message that makes the scripted model do the steps.
func Script(steps ...Step) string {
	b, err := json.Marshal(steps)
	if err != nil {
		panic(err) // texts and numbers can always be encoded
	}
	return "<script>" + string(b) + "</script>"
}
