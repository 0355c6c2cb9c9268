package scripted_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/modeltest"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
)

func TestConformance(t *testing.T) {
	modeltest.Run(t, modeltest.Options{NoSignatures: true}, func(*testing.T) model.Provider { return scripted.New() })
}
