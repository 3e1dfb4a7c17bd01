"""The attention layers of HuggingFace transformers, small, with random weights."""

import numpy as np
import torch
import transformers
from transformers.models.bert.modeling_bert import BertAttention
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention, Gemma2RotaryEmbedding
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding
from transformers.models.mistral.modeling_mistral import MistralAttention, MistralRotaryEmbedding
from transformers.models.t5.modeling_t5 import T5Attention
from cases import Case, Draw
