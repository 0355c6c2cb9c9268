package scripted_test

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
)

func ExampleNew() {
	req := model.Request{Messages: []model.Message{{Role: model.User, Blocks: []model.Block{
		{Type: model.Text, Text: `<script>[{"say":"what the script says"}]</script>`},
	}}}}
	for chunk, err := range scripted.New().Stream(context.Background(), req) {
		if err == nil && chunk.Type == model.ChunkBlock {
			fmt.Println(chunk.Block.Text)
		}
	}
	// Output: what the script says
}
