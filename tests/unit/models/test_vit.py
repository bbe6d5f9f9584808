"""The vision transformer's head, image sizes and classes."""

import pytest
import torch
from model_batches import batch
from transformers.models.vit.modeling_vit import ViTForImageClassification

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.models.build import ModelError, build
from feedrate.models.builders import vit
from feedrate.models.builders.vit import UNKNOWN, ClassTokenizer


def test_with_a_class_token_it_is_the_librarys_own_model(make):
    ours = make("vit").model.eval()
    theirs = ViTForImageClassification(ours.config).eval()
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(ours(images).logits, theirs(images).logits)


def test_pooled_reads_the_mean_of_all_patches(make):
    built = make("vit", head="pooled")
    seen = []
    built.model.vit.layernorm.register_forward_hook(lambda *args: seen.append(args[2]))
    with torch.no_grad():
        logits = built.model.eval()(**batch(built)).logits
    (tokens,) = seen
    assert tokens.shape[1] == (224 // 16) ** 2
    assert torch.allclose(built.model.classifier(tokens.mean(1)), logits, atol=1e-6)


def test_no_copies_are_made_for_attention_in_the_batch_second_layout(make):
    def copies(layout):
        built = make("vit", layout=layout)
        inputs = batch(built)
        with torch.profiler.profile() as profile, torch.no_grad():
            built.model.eval()(**inputs)
        return sum(e.count for e in profile.key_averages() if e.key == "aten::clone")

    assert copies("batch_second") < copies("batch_first")


def test_an_unknown_class_is_left_out_of_the_loss(make):
    built = make("vit")
    model, inputs = built.model.eval(), batch(built)
    alone = {k: v[:2] if k != "return_loss" else v for k, v in inputs.items()}
    inputs["input_ids"][2:] = UNKNOWN
    with torch.no_grad():
        assert torch.allclose(model(**inputs).loss, model(**alone).loss)
        inputs["input_ids"][:] = UNKNOWN
        assert float(model(**inputs).loss) == 0.0


def test_classes_are_the_training_splits_values_in_order(labelled):
    classes = ClassTokenizer(labelled, "contest_number", 1000)
    assert classes.names == [str(n) for n in range(100, 112)]
    tokens = classes(["100", "111", "9"])
    assert tokens["input_ids"].tolist() == [[0], [11], [UNKNOWN]]
    assert tokens["attention_mask"].tolist() == [[1], [1], [1]]


@pytest.mark.parametrize(
    ("column", "outputs", "message"),
    [
        ("contest", 1000, "has no column 'contest'"),
        ("label", 1000, "the column 'label' is empty"),
        ("contest_number", 5, "has 12 values, the model has 5 classes"),
    ],
)
def test_columns_that_cannot_be_classes(labelled, column, outputs, message):
    with pytest.raises(ModelError, match=message):
        ClassTokenizer(labelled, column, outputs)


def test_a_checkpoint_gives_the_same_model(make, labelled, tmp_path):
    built = make("vit", head="pooled", image_px=64)
    built.model.save_pretrained(tmp_path / "weights")
    settings = ModelSettings(
        name="vit",
        size="tiny",
        head="pooled",
        layout="batch_second",
        checkpoint=str(tmp_path / "weights"),
    )
    loaded = build(settings, LoaderSettings(), labelled)
    assert loaded.image_px == 64
    with torch.no_grad():
        ours, theirs = (b.model.eval()(**batch(built)).logits for b in (built, loaded))
    assert torch.allclose(ours, theirs, atol=1e-5)
    other = ModelSettings(
        name="vit", size="tiny", image_px=128, checkpoint=str(tmp_path / "weights")
    )
    with pytest.raises(ModelError, match="the checkpoint is for 64 px"):
        build(other, LoaderSettings(), labelled)


def test_flash_is_refused_where_there_is_no_kernel(make):
    """Double precision has none on a GPU; here a mask of a wrong kind shows that nothing falls
    back: the kernel alone is allowed."""
    query = torch.randn(1, 1, 4, 0)
    with pytest.raises(RuntimeError):
        vit.ATTEND["flash"](query, query, query[..., :0].to(torch.int))


def test_a_checkpoint_of_another_model_is_refused(make, labelled, tmp_path):
    folder = str(tmp_path / "weights")
    make("clip").model.save_pretrained(folder)
    for name in ("vit", "flava", "bridgetower"):
        settings = ModelSettings(name=name, size="tiny", checkpoint=folder)
        with pytest.raises(ModelError, match=f"of the model clip, and model.name is {name}"):
            build(settings, LoaderSettings(), labelled)
